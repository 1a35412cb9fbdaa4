// Command measure compares httpdrain.Serve with net/http alone: what 50 shutdowns under load lose, how long after the last
// connection's end the drain returns, for each protocol, and the throughput. Both ways take turns, in one process together
// with the clients.
//
//	go run ./httpdrain/internal/measure [-shutdowns 50] [-rounds 31] [-write]
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/internal/machine"
)

func main() {
	shutdowns := flag.Int("shutdowns", 50, "shutdowns under load, each way")
	rounds := flag.Int("rounds", 31, "rounds of latency and throughput, each way")
	write := flag.Bool("write", false, "also write docs/httpdrain.md")
	flag.Parse()
	log.SetOutput(io.Discard) // of servers whose handshakes are cut off
	var page strings.Builder
	w := io.MultiWriter(os.Stdout, &page)
	fmt.Fprintf(w, "Measured %s on %s.\n\n", time.Now().Format(time.DateOnly), machine.String())
	lost(w, *shutdowns)
	latency(w, *rounds)
	throughput(w, 32**rounds)
	if *write {
		if err := os.WriteFile("docs/httpdrain.md", []byte(head+page.String()), 0o666); err != nil {
			fmt.Fprintln(os.Stderr, "measure: run it from the root of the repository:", err)
			os.Exit(1)
		}
	}
}

const head = `# httpdrain, measured

Produced by ` + "`make bench`" + `; do not edit. See the documentation of the package for what it does, and in which order.

`

// A way is a running server.
type way struct {
	addr string
	stop func()        // tells it to stop
	done chan struct{} // closed when it has stopped
}

const (
	ours   = "httpdrain"
	theirs = "Shutdown"
)

var ways = []string{ours, theirs}

// serve starts srv one way or the other.
func serve(how string, srv *http.Server, opts ...httpdrain.Option) *way {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	w := &way{addr: ln.Addr().String(), done: make(chan struct{})}
	secure := srv.TLSConfig != nil
	if how == ours {
		s := ctxshutdown.New(context.Background())
		w.stop = func() { s.Shutdown() }
		go func() {
			defer close(w.done)
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

// What clients saw of the requests in a shutdown.
type tally struct{ started, lost, refused, goAway atomic.Int64 }

const clients = 50

func lost(w io.Writer, shutdowns int) {
	fmt.Fprintf(w, "## Lost\n\n%d shutdowns each way, under the load of %d clients. Lost: bytes were sent on an established connection and no complete\n"+
		"response came back. What GOAWAY refuses was not carried out, which the client knows.\n\n", shutdowns, clients)
	fmt.Fprintf(w, "| load | way | requests | lost | refused | refused by GOAWAY | drain, median |\n| --- | --- | ---: | ---: | ---: | ---: | ---: |\n")
	for _, load := range []struct {
		name string
		make func(http.Handler) *http.Server
		run  func(*way, *tally)
	}{
		{"HTTP/1.1 keep-alive POST, raw sockets", plain, func(w *way, t *tally) { rawClient(w, nil, t) }},
		{"HTTP/1.1 keep-alive POST over TLS, raw sockets", secure, func(w *way, t *tally) { rawClient(w, insecure, t) }},
		{"HTTP/2 over TLS, net/http", secure, func(w *way, t *tally) { libraryClient(w, "h2", t) }},
		{"h2c, net/http", cleartext2, func(w *way, t *tally) { libraryClient(w, "h2c", t) }},
	} {
		totals := map[string]*tally{ours: {}, theirs: {}}
		times := map[string][]float64{}
		for range shutdowns {
			for _, how := range ways {
				var n atomic.Int64
				busy := make(chan struct{})
				w := serve(how, load.make(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					io.Copy(io.Discard, r.Body)
					if n.Add(1) == 1000 {
						close(busy)
					}
					io.WriteString(w, "ok")
				})))
				var wg sync.WaitGroup
				for range clients {
					wg.Go(func() { load.run(w, totals[how]) })
				}
				<-busy
				began := time.Now()
				w.stop()
				<-w.done
				times[how] = append(times[how], float64(time.Since(began)))
				wg.Wait()
			}
		}
		for _, how := range ways {
			t := totals[how]
			fmt.Fprintf(w, "| %s | %s | %d | %d | %d | %d | %.1f ms |\n", load.name, how, t.started.Load(), t.lost.Load(), t.refused.Load(), t.goAway.Load(), median(times[how])/1e6)
		}
	}
}

const post = "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\nbody"

// rawClient never sends a request twice.
func rawClient(w *way, config *tls.Config, t *tally) {
	for {
		conn, err := net.Dial("tcp", w.addr)
		if err != nil {
			t.refused.Add(1)
			return
		}
		if config != nil {
			tc := tls.Client(conn, config)
			if tc.Handshake() != nil { // nothing of a request has been sent
				conn.Close()
				t.refused.Add(1)
				continue
			}
			conn = tc
		}
		in := bufio.NewReader(conn)
		for keep := true; keep; {
			t.started.Add(1)
			_, err := io.WriteString(conn, post)
			var resp *http.Response
			if err == nil {
				resp, err = http.ReadResponse(in, nil)
			}
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
			}
			if err != nil {
				t.lost.Add(1)
				break
			}
			keep = !resp.Close
		}
		conn.Close()
	}
}

// libraryClient posts what net/http may not send again by itself, over a connection of its own.
func libraryClient(w *way, protocol string, t *tally) {
	c, url := client(w, protocol)
	defer c.CloseIdleConnections()
	for {
		t.started.Add(1)
		req, _ := http.NewRequest("POST", url, struct{ io.Reader }{strings.NewReader("body")}) // no GetBody
		resp, err := c.Do(req)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		var op *net.OpError
		switch {
		case err == nil:
		case errors.As(err, &op) && op.Op == "dial":
			t.started.Add(-1)
			t.refused.Add(1)
			return
		case strings.Contains(err.Error(), "GOAWAY") || strings.Contains(err.Error(), "cannot retry err") && strings.Contains(err.Error(), "Request.GetBody"):
			t.goAway.Add(1)
		default:
			t.lost.Add(1)
		}
	}
}

func client(w *way, protocol string) (*http.Client, string) {
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

// latency measures, from the client's side, a stop in the middle of a request that ends 20 ms later.
func latency(w io.Writer, rounds int) {
	fmt.Fprintf(w, "\n## How long it takes\n\nA stop in the middle of a request that ends 20 ms after it: medians (largest) of %d.\n\n", rounds)
	fmt.Fprintf(w, "| client | way | answered after its time | drain returns after the client's connection has ended |\n| --- | --- | ---: | ---: |\n")
	const lasts = 20 * time.Millisecond
	for _, p := range []struct {
		name, protocol string
		make           func(http.Handler) *http.Server
	}{{"HTTP/1.1", "h1", plain}, {"HTTP/1.1 over TLS", "h1s", secure}, {"HTTP/2 over TLS", "h2", secure}, {"h2c", "h2c", cleartext2},
		{"server-sent events, HTTP/1.1", "sse", plain}, {"hijacked", "hijack", plain}} {
		answered, returned := map[string][]float64{}, map[string][]float64{}
		for range rounds {
			for _, how := range ways {
				if how == theirs && p.protocol == "hijack" {
					continue // not waited for
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
				over := make(chan struct{})
				dial := new(net.Dialer).DialContext
				c.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
					nc, err := dial(ctx, network, addr)
					return &watchedConn{Conn: nc, ended: &ended, over: over}, err
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
				<-over
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

// A watchedConn notes when the connection has ended, for the client.
type watchedConn struct {
	net.Conn
	once  sync.Once
	ended *time.Time
	over  chan struct{}
}

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.end()
	}
	return n, err
}

func (c *watchedConn) Close() error { c.end(); return c.Conn.Close() }

func (c *watchedConn) end() { c.once.Do(func() { *c.ended = time.Now(); close(c.over) }) }

func median(xs []float64) float64 { return quantile(xs, 0.5) }

func quantile(xs []float64, q float64) float64 {
	s := slices.Sorted(slices.Values(xs))
	return s[int(q*float64(len(s)-1)+0.5)]
}

func spread(xs []float64) string {
	return fmt.Sprintf("%.2f ms (%.2f)", median(xs)/1e6, quantile(xs, 1)/1e6)
}
