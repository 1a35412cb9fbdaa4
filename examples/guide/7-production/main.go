// Command 7-production is an HTTP service with probes, a debug page and logs, ready to be deployed.
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
	admin := flag.String("admin", "127.0.0.1:9090", "where to listen for probes and the debug page")
	delay := flag.Duration("lame-duck", 0, "how long to keep serving after a signal, so that load balancers notice")
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
	defer probes.Close() // after the drain, so that probes and the debug page are available until then
	return graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /hello", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") })

		adminMux := http.NewServeMux()
		adminMux.Handle("GET /readyz", httpdrain.Ready(s))
		adminMux.Handle("GET /livez", httpdrain.Live(s))
		adminMux.Handle("GET /debug/shutdown", httpdrain.Debug(s, httpdrain.LocalOnly()))
		go func() {
			if err := http.Serve(probes, adminMux); !errors.Is(err, net.ErrClosed) {
				slog.Error("probes", "err", err)
			}
		}()

		ln, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		slog.Info("serving", "addr", ln.Addr().String(), "admin", probes.Addr().String())
		graceful.Ready(s) // sends READY=1 to systemd
		return httpdrain.Serve(s, &http.Server{Handler: mux}, ln, httpdrain.WithLogger(slog.Default()))
	},
		graceful.WithLameDuck(delay),
		graceful.WithLogger(slog.Default()),
		graceful.WithScope(ctxshutdown.WithTrace()), // adds lines and ages to reports, for about 0.5 µs a guard
		graceful.WithPreStop("deregister", func(context.Context) error { return nil }),
	)
}
