// Command 7-production is an HTTP service with probes, metrics, a debug page and logs. The
// manifests and units in docs/deploy run it as it is.
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
	admin := flag.String("admin", "127.0.0.1:9090", "where to listen for probes, metrics and the debug page")
	delay := flag.Duration("lame-duck", 0, "how long to keep serving after a signal, so that load balancers notice")
	soft := flag.Duration("soft", 10*time.Second, "after that, how long requests may take to finish before they are cancelled")
	hard := flag.Duration("hard", 2*time.Second, "how long cancelled requests may take to return before the program exits without them")
	flag.Parse()
	err := run(*addr, *admin, graceful.WithLameDuck(*delay), graceful.WithSoft(*soft), graceful.WithHard(*hard))
	if err != nil {
		slog.Error("ended", "err", err)
	}
	os.Exit(graceful.ExitCode(err))
}

func run(addr, admin string, phases ...graceful.Option) error {
	probes, err := net.Listen("tcp", admin)
	if err != nil {
		return err
	}
	defer probes.Close() // closed after the drain, so that probes, metrics and the debug page are available until then
	opts := append(phases,
		graceful.WithLogger(slog.Default()),
		graceful.WithScope(ctxshutdown.WithTrace()), // reports say where and when guards were acquired; costs 0.5 µs a guard
		graceful.WithPreStop("deregister", func(context.Context) error { return nil }),
	)
	return graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /hello", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") })

		adminMux := http.NewServeMux()
		adminMux.Handle("GET /readyz", httpdrain.Ready(s))
		adminMux.Handle("GET /livez", httpdrain.Live(s))
		adminMux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) { writeMetrics(w, s) })
		adminMux.Handle("GET /debug/shutdown", httpdrain.Debug(s, httpdrain.WithToken(os.Getenv("DEBUG_TOKEN"))))
		go func() {
			srv := &http.Server{Handler: adminMux, ReadHeaderTimeout: 10 * time.Second}
			if err := srv.Serve(probes); !errors.Is(err, net.ErrClosed) {
				slog.Error("probes", "err", err)
			}
		}()

		ln, err := graceful.Listen("tcp", addr) // under a .socket unit, Listen returns the socket of systemd
		if err != nil {
			return err
		}
		slog.Info("serving", "addr", ln.Addr().String(), "admin", probes.Addr().String())
		graceful.Ready(s) // sends READY=1 to systemd
		return httpdrain.Serve(s, &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}, ln, httpdrain.WithLogger(slog.Default()))
	}, opts...)
}

// writeMetrics writes a few metrics in the text format of Prometheus. A program that uses the
// client of Prometheus registers the collectors of integrations/promdrain instead, which have the
// same names.
func writeMetrics(w http.ResponseWriter, s *ctxshutdown.Swansong) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	st := httpdrain.ReadStats()
	fmt.Fprintf(w, "# TYPE swansong_guards gauge\nswansong_guards %d\n", s.GuardReport().Count())
	fmt.Fprintf(w, "# TYPE swansong_http_cut_total counter\nswansong_http_cut_total %d\n", st.Cut)
	fmt.Fprintf(w, "# TYPE swansong_http_refused_total counter\nswansong_http_refused_total %d\n", st.Refused)
}
