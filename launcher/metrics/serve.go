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

// DefaultAddress is where [Serve] serves when it is not told.
const DefaultAddress = "127.0.0.1:9464"

// What a scrape may take. A client that is slower than that has something else in mind.
const (
	headerTimeout = 5 * time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = 2 * time.Minute
	lastScrape    = time.Second // for one that is under way when everything is over
	maxHeader     = 16 << 10
	maxScrapes    = 8 // at once; more get a 503
)

// Serve serves the metrics of a launcher, and those of Go and of its process, at http://address/metrics. It returns at once,
// with the address that a port 0 has become.
//
// Anybody who can connect can read them: groups' names, and how they are. So an address without a host, such as ":9464", is
// 127.0.0.1; for other machines, name an address that they reach, or 0.0.0.0. Empty is [DefaultAddress].
//
// The last process's end can be scraped, too: the server is part of the launcher's drain, and ends when the groups are
// empty.
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
		return nil, fmt.Errorf("metrics: the address has to be host:port, as in %s: %w", DefaultAddress, err)
	}
	held, ok := m.Scope().TryGuard()
	if !ok {
		return nil, fmt.Errorf("metrics: not served: %w", context.Cause(m.Scope()))
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
	// Events end with the last process. The scope's own end would be too late: it waits for this server.
	events, _ := m.Watch()
	go func() {
		defer held.Release()
		for range events {
		}
		ctx, cancel := context.WithTimeout(context.Background(), lastScrape)
		defer cancel()
		if srv.Shutdown(ctx) != nil {
			srv.Close()
		}
		<-served
	}()
	return ln.Addr(), nil
}
