package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain"
)

// serveUntilDrained stops the service in three stages, so that no stage is stopped while an earlier
// one can still give it work. The scopes of the stages derive from s.Work() and not from s: a stop
// of s would otherwise reach all of them at once.
//
//	s ─┬─ web     answer the requests, close idle connections
//	   ├─ mails   confirm the orders in the queue
//	   └─ disk    write the buffer to disk
func serveUntilDrained(ln net.Listener, sv *service) error { return serveGracefully(ln, sv, false) }

// serveGracefully is serveUntilDrained with options for graceful.Run. It prints the address of the
// debug page if the service stays open long enough for a person to look at it.
func serveGracefully(ln net.Listener, sv *service, isForPerson bool, opts ...graceful.Option) error {
	admin, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer admin.Close() // close the debug page only after the drain, so that it shows all of the drain
	opts = append(opts, graceful.WithLogger(slog.Default()))
	return graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		web, _ := ctxshutdown.WithCancel(s.Work(), ctxshutdown.WithName("web"))
		mails, _ := ctxshutdown.WithCancel(s.Work(), ctxshutdown.WithName("mails"))
		disk, _ := ctxshutdown.WithCancel(s.Work(), ctxshutdown.WithName("disk"))

		served := make(chan error, 1)
		go func() {
			served <- httpdrain.Serve(web, &http.Server{Handler: sv.handler(), ReadHeaderTimeout: 10 * time.Second}, ln)
			s.Shutdown() // the listener may have failed, and then nothing else stops the scope
		}()
		// The loops get the scopes mails and disk, and not the contexts that Go passes to its
		// functions: these contexts end only at Force. A loop must end when its scope is stopped,
		// to empty the queue or the buffer.
		mails.Go(func(context.Context) { sv.sendMails(mails) })
		disk.Go(func(context.Context) { sv.flushOrders(disk) })

		go (&http.Server{Handler: adminHandler(s), ReadHeaderTimeout: 10 * time.Second}).Serve(admin)
		if isForPerson {
			fmt.Fprintf(os.Stderr, "  shop: http://%v/report\n  debug page: http://%v/debug/shutdown\n", ln.Addr(), admin.Addr())
		}
		graceful.Ready(s)
		return errors.Join(graceful.InOrder(s, web, mails, disk), <-served)
	}, opts...)
}

// adminHandler serves the debug page and the probes, which are not for clients of the shop.
func adminHandler(s *ctxshutdown.Swansong) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /debug/shutdown", httpdrain.Debug(s, httpdrain.LocalOnly()))
	mux.Handle("GET /readyz", httpdrain.Ready(s))
	mux.Handle("GET /livez", httpdrain.Live(s))
	return mux
}
