package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain"
)

// serveUntilDrained stops the stages one after another, each when nobody is left who could give it work: first the
// server, then the mails, then the disk. They derive from Work, so that the stop does not reach all of them at once.
//
//	s ─┬─ shop    answer what arrives, close what is quiet
//	   ├─ mails   confirm what is in the queue
//	   └─ disk    write what is in the buffer
func serveUntilDrained(ln net.Listener, sv *service) error { return serveGracefully(ln, sv) }

func serveGracefully(ln net.Listener, sv *service, opts ...graceful.Option) error {
	admin, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer admin.Close() // last, so that the page can be looked at until the very end
	opts = append(opts, graceful.WithLogger(slog.Default()))
	return graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		shop, _ := ctxshutdown.WithCancel(s.Work(), ctxshutdown.WithName("shop"))
		mails, _ := ctxshutdown.WithCancel(s.Work(), ctxshutdown.WithName("mails"))
		disk, _ := ctxshutdown.WithCancel(s.Work(), ctxshutdown.WithName("disk"))

		served := make(chan error, 1)
		go func() {
			served <- httpdrain.Serve(shop, &http.Server{Handler: sv.handler()}, ln)
			s.Shutdown() // should the listener have failed: still, drain what was accepted
		}()
		mails.Go(func(context.Context) { sv.sendMails(mails) }) // mails, not its Work: told to stop, it empties the queue
		disk.Go(func(context.Context) { sv.flushOrders(disk) })

		go http.Serve(admin, watch(s))
		fmt.Fprintf(os.Stderr, "  watch it drain: http://%v/debug/shutdown\n", admin.Addr())
		graceful.Ready(s)
		return errors.Join(graceful.InOrder(s, shop, mails, disk), <-served)
	}, opts...)
}

// watch is what is not for customers.
func watch(s *ctxshutdown.Swansong) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /debug/shutdown", httpdrain.Debug(s))
	mux.Handle("GET /readyz", httpdrain.Ready(s))
	mux.Handle("GET /livez", httpdrain.Live(s))
	return mux
}
