package main

import (
	"context"
	"net"
	"net/http"
)

// serveUntilKilled does nothing about signals: SIGTERM ends the process, and with it every request in flight, the
// queue, and what is in the buffers. It is what a program does whose author has not thought of it.
func serveUntilKilled(ln net.Listener, sv *service) error {
	go sv.sendMails(context.Background())
	go sv.flushOrders(context.Background())
	return http.Serve(ln, sv.handler())
}
