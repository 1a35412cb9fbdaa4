package metrics

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/swansong-go/swansong/launcher"
)

// DefaultAddress is the address of [Serve] if none is given.
const DefaultAddress = "127.0.0.1:9464"

// Limits of scrapes. They prevent slow clients from holding connections open.
const (
	headerTimeout = 5 * time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = 2 * time.Minute
	stopTimeout   = time.Second // time that pending scrapes have when the launcher ends
	maxHeader     = 16 << 10
	maxScrapes    = 8 // maximum number of concurrent scrapes; further requests are answered with status 503
)

// Serve serves the metrics of a launcher, of the Go runtime and of the launcher's process at
// http://address/metrics. It returns at once, with the actual address, which has the chosen port in
// place of port 0.
//
// Every client that can connect can read the names and the state of the groups. Therefore an
// address without a host, such as ":9464", means 127.0.0.1. To serve other machines, give an
// address that they can reach, or 0.0.0.0. An empty address means [DefaultAddress].
//
// The server is part of the launcher's drain, and stops when all groups are empty, so the end of
// the last process can be scraped.
func Serve(m *launcher.Manager, address string) (net.Addr, error) {
	own, err := New(m)
	if err != nil {
		return nil, err
	}
	reg := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{own, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	host, port, err := net.SplitHostPort(cmp.Or(address, DefaultAddress))
	if err != nil {
		return nil, fmt.Errorf("metrics: invalid address, want host:port as in %s: %w", DefaultAddress, err)
	}
	held, ok := m.Scope().TryGuard()
	if !ok {
		return nil, fmt.Errorf("metrics: the launcher is stopping, so its metrics are not served: %w", context.Cause(m.Scope()))
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port))
	if err != nil {
		held.Release()
		return nil, fmt.Errorf("metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes, Timeout: writeTimeout / 2}))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader}
	served := make(chan struct{})
	go func() { defer close(served); srv.Serve(ln) }()
	// Serve until the channel of events is closed, when the last process has ended. A wait for the
	// completion of the scope would never end, because the scope waits for this server.
	events, _ := m.Watch()
	go func() {
		defer held.Release()
		for range events {
		}
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		if srv.Shutdown(ctx) != nil {
			srv.Close()
		}
		<-served
	}()
	return ln.Addr(), nil
}
