// Command measure compares httpdrain.Serve with net/http alone, for each protocol: how many
// requests are lost in shutdowns under load, how long after the last connection's end the drain
// returns, and the throughput. The two take turns in one process, together with the clients.
//
//	go run ./httpdrain/internal/measure [-shutdowns 50] [-rounds 31] [-only proxies,latency] [-write]
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/internal/figures"
)

func main() {
	if addr := os.Getenv(serveEnv); addr != "" {
		os.Exit(serveUntilSignal(addr))
	}
	shutdowns := flag.Int("shutdowns", 50, "`number` of shutdowns under load, by httpdrain and by net/http each")
	rounds := flag.Int("rounds", 31, "`number` of rounds of latency and throughput, for httpdrain and for net/http each")
	far := flag.Int("far", 1000, "`number` of clients of the slow network")
	restarts := flag.Int("restarts", 20, "`number` of restarts of a process, and of servers behind each proxy, for httpdrain and for net/http each")
	only := flag.String("only", "", "measure only these `sections`, and keep the others of the page: lost, slow-network, tls-listener, endless-headers, restarts, proxies, latency, throughput")
	write := flag.Bool("write", false, "also write docs/measured/httpdrain-figures.md")
	flag.Parse()
	log.SetOutput(io.Discard) // do not print the failed handshakes that net/http logs
	sections := []section{
		{"lost", "Lost", func(w io.Writer) error { lost(w, *shutdowns); return nil }},
		{"slow-network", "Lost over a slow network", func(w io.Writer) error {
			slowNetwork(w, *far, []time.Duration{0, time.Second, 5 * time.Second},
				[]time.Duration{0, 10 * time.Millisecond, 50 * time.Millisecond, 150 * time.Millisecond},
				[]time.Duration{0, time.Second, 3 * time.Second, 10 * time.Second})
			return nil
		}},
		{"tls-listener", "A listener that returns a *tls.Conn", func(w io.Writer) error { tlsListener(w, *shutdowns); return nil }},
		{"endless-headers", "Headers without an end", func(w io.Writer) error { endlessHeaders(w); return nil }},
		{"restarts", "Restarts of a process", func(w io.Writer) error { return restartProcess(w, *restarts) }},
		{"proxies", "Behind proxies", func(w io.Writer) error { return behindProxies(w, *restarts) }},
		{"latency", "How long it takes", func(w io.Writer) error { latency(w, *rounds); return nil }},
		{"throughput", "Throughput", func(w io.Writer) error { throughput(w, 32**rounds); return nil }},
	}
	if err := writePage(sections, *only, *write); err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

const head = `# httpdrain, measured

Produced by ` + "`make bench`" + `; do not edit. See the documentation of the package for what it does, and in which order.
` + "`go run ./httpdrain/internal/measure -only lost,throughput -write`" + ` renews only these sections; with -h, it lists all.
`

// A running is a server that is drained by httpdrain or shut down by net/http.
type running struct {
	addr string
	stop func()        // begins the shutdown without waiting for its end
	done chan struct{} // closed when the server has stopped
}

const (
	httpdrainServe = "httpdrain"
	netHTTP        = "Shutdown"
)

var ways = []string{httpdrainServe, netHTTP}

// serve starts srv with httpdrain or with net/http alone: how is httpdrainServe or netHTTP.
func serve(how string, srv *http.Server, opts ...httpdrain.Option) *running {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	return serveOn(ln, how, srv, opts...)
}

func serveOn(ln net.Listener, how string, srv *http.Server, opts ...httpdrain.Option) *running {
	w := &running{addr: ln.Addr().String(), done: make(chan struct{})}
	secure := srv.TLSConfig != nil
	if how == httpdrainServe {
		s := ctxshutdown.New(context.Background())
		w.stop = func() { s.Shutdown() }
		go func() {
			defer close(w.done)
			var err error
			if secure {
				err = httpdrain.ServeTLS(s, srv, ln, "", "", opts...)
			} else {
				err = httpdrain.Serve(s, srv, ln, opts...)
			}
			if err != nil {
				panic(err)
			}
		}()
		return w
	}
	w.stop = func() {
		go func() {
			defer close(w.done)
			srv.Shutdown(context.Background())
		}()
	}
	go func() {
		if secure {
			srv.ServeTLS(ln, "", "")
		} else {
			srv.Serve(ln)
		}
	}()
	return w
}

func client(w *running, protocol string) (*http.Client, string) {
	tr := &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: insecure.Clone(), MaxConnsPerHost: 1}
	url := "http://" + w.addr
	switch protocol {
	case "h2":
		tr.Protocols.SetHTTP2(true)
		url = "https://" + w.addr
	case "h2c":
		tr.Protocols.SetUnencryptedHTTP2(true)
	case "h1s":
		tr.Protocols.SetHTTP1(true)
		url = "https://" + w.addr
	default:
		tr.Protocols.SetHTTP1(true)
	}
	return &http.Client{Transport: tr}, url
}

var (
	insecure    = &tls.Config{InsecureSkipVerify: true}
	certificate = sync.OnceValue(func() tls.Certificate {
		ts := httptest.NewTLSServer(nil)
		defer ts.Close()
		return ts.TLS.Certificates[0]
	})
)

func plain(h http.Handler) *http.Server { return &http.Server{Handler: h} }

func secure(h http.Handler) *http.Server {
	return &http.Server{Handler: h, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate()}}}
}

func cleartext2(h http.Handler) *http.Server {
	srv := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	return srv
}

// latency stops a server during a request that ends 20 ms later. It measures how late the client
// gets the response, and how long after the end of the client's connection the drain returns.
func latency(w io.Writer, rounds int) {
	fmt.Fprintf(w, "\n## How long it takes\n\nA stop during a request that ends 20 ms later: medians (largest) of %d.\n\n", rounds)
	fmt.Fprintf(w, "| client | way | response later than 20 ms by | drain returns after the end of the client's connection by |\n| --- | --- | ---: | ---: |\n")
	const lasts = 20 * time.Millisecond
	for _, p := range []struct {
		name, protocol string
		make           func(http.Handler) *http.Server
	}{{"HTTP/1.1", "h1", plain}, {"HTTP/1.1 over TLS", "h1s", secure}, {"HTTP/2 over TLS", "h2", secure}, {"h2c", "h2c", cleartext2},
		{"server-sent events, HTTP/1.1", "sse", plain}, {"hijacked", "hijack", plain}} {
		answered, returned := map[string][]float64{}, map[string][]float64{}
		for range rounds {
			for _, how := range ways {
				if how == netHTTP && p.protocol == "hijack" {
					continue // nothing to measure: http.Server.Shutdown does not wait for hijacked connections
				}
				entered, leave := make(chan struct{}), make(chan struct{})
				w := serve(how, p.make(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					var conn net.Conn
					switch p.protocol {
					case "sse":
						io.WriteString(w, "data: hello\n\n")
						http.NewResponseController(w).Flush()
					case "hijack":
						conn, _, _ = http.NewResponseController(w).Hijack()
						defer conn.Close()
					}
					close(entered)
					<-leave
					if conn != nil {
						io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
						return
					}
					io.WriteString(w, "ok")
				})))
				c, url := client(w, p.protocol)
				var ended, at time.Time
				noticed := make(chan struct{})
				dial := new(net.Dialer).DialContext
				c.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
					nc, err := dial(ctx, network, addr)
					return &watchedConn{Conn: nc, ended: &ended, noticed: noticed}, err
				}
				done := make(chan struct{})
				go func() {
					defer close(done)
					resp, err := c.Get(url)
					if err == nil {
						_, err = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
					if err != nil {
						panic(err)
					}
					at = time.Now()
				}()
				<-entered
				w.stop()
				time.Sleep(lasts)
				released := time.Now()
				close(leave)
				<-w.done
				back := time.Now()
				<-done
				<-noticed
				c.CloseIdleConnections()
				answered[how] = append(answered[how], float64(at.Sub(released)))
				returned[how] = append(returned[how], float64(back.Sub(ended)))
			}
		}
		for _, how := range ways {
			if len(answered[how]) > 0 {
				fmt.Fprintf(w, "| %s | %s | %s | %s |\n", p.name, how, spread(answered[how]), spread(returned[how]))
			}
		}
	}
}

// A watchedConn records when the client noticed that the connection was closed.
type watchedConn struct {
	net.Conn
	once    sync.Once
	ended   *time.Time
	noticed chan struct{}
}

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.end()
	}
	return n, err
}

func (c *watchedConn) Close() error { c.end(); return c.Conn.Close() }

func (c *watchedConn) end() { c.once.Do(func() { *c.ended = time.Now(); close(c.noticed) }) }

func spread(xs []float64) string {
	return fmt.Sprintf("%.2f ms (%.2f)", figures.Median(xs)/1e6, figures.Quantile(xs, 1)/1e6)
}
