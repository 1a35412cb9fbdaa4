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

// serveUntilShutdown follows the example in the documentation of http.Server.Shutdown: it calls
// Shutdown on a signal, and returns after Shutdown has returned. Shutdown waits for the requests
// that handlers are processing. It closes idle connections at once, even if a request is already in
// the socket, and it does not wait for the queue and the buffers that the handlers have filled.
func serveUntilShutdown(ln net.Listener, sv *service) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go sv.sendMails(context.Background())
	go sv.flushOrders(context.Background())

	srv := &http.Server{Handler: sv.handler(), ReadHeaderTimeout: 10 * time.Second}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		shutdownCtx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		stopped <- srv.Shutdown(shutdownCtx)
	}()
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}
