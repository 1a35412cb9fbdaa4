package main

import (
	"context"
	"net"
	"net/http"
)

// serveUntilKilled does not handle signals. SIGTERM ends the process at once: requests in flight
// get no response, and the contents of the queue and of the buffers are lost. Every program behaves
// like this by default.
func serveUntilKilled(ln net.Listener, sv *service) error {
	go sv.sendMails(context.Background())
	go sv.flushOrders(context.Background())
	return http.Serve(ln, sv.handler())
}
