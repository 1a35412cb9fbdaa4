// Command 7-production can be looked at and deployed.
package main

import (
	"context"
	"errors"
	"flag"
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

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "where to listen")
	admin := flag.String("admin", "127.0.0.1:9090", "where to listen for probes and for the curious")
	delay := flag.Duration("lame-duck", 0, "how long to go on after a signal, so that load balancers notice")
	flag.Parse()
	err := run(*addr, *admin, *delay)
	if err != nil {
		slog.Error("ended", "err", err)
	}
	os.Exit(graceful.ExitCode(err))
}

func run(addr, admin string, delay time.Duration) error {
	probes, err := net.Listen("tcp", admin)
	if err != nil {
		return err
	}
	defer probes.Close() // after the drain: probes and the page are answered until the very end
	return graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /hello", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") })

		watch := http.NewServeMux()
		watch.Handle("GET /readyz", httpdrain.Ready(s))
		watch.Handle("GET /livez", httpdrain.Live(s))
		watch.Handle("GET /debug/shutdown", httpdrain.Debug(s))
		go func() {
			if err := http.Serve(probes, watch); !errors.Is(err, net.ErrClosed) {
				slog.Error("probes", "err", err)
			}
		}()

		ln, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		slog.Info("serving", "addr", ln.Addr().String(), "admin", probes.Addr().String())
		graceful.Ready(s) // systemd: READY=1
		return httpdrain.Serve(s, &http.Server{Handler: mux}, ln, httpdrain.WithLogger(slog.Default()))
	},
		graceful.WithLameDuck(delay),
		graceful.WithLogger(slog.Default()),
		graceful.WithScope(ctxshutdown.WithTrace()), // reports name lines and ages, for 0.1 µs a guard
		graceful.WithPreStop("deregister", func(context.Context) error { return nil }),
	)
}
