package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os/signal"
	"syscall"
	"time"
)

// serveUntilShutdown is the example in the documentation of http.Server.Shutdown: on a signal, call it, and return
// when it has. It waits for the requests in flight. It closes idle connections at once, also those with a request
// already on its way, and it knows nothing of the queue and of the buffers behind the handlers.
func serveUntilShutdown(ln net.Listener, sv *service) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go sv.sendMails(context.Background())
	go sv.flushOrders(context.Background())

	srv := &http.Server{Handler: sv.handler()}
	idle := make(chan error, 1)
	go func() {
		<-ctx.Done()
		limit, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		idle <- srv.Shutdown(limit)
	}()
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-idle
}
