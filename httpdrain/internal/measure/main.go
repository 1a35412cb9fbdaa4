// Command measure compares httpdrain.Serve with net/http alone: what 50 shutdowns under load lose, how long after the last
// connection's end the drain returns, for each protocol, and the throughput. Both ways take turns, in one process together
// with the clients.
//
//	go run ./httpdrain/internal/measure [-shutdowns 50] [-rounds 31] [-write]
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
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
	throughput(w, 16**rounds)
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

// least is the throughput that a service is meant to keep, of what it has without httpdrain.
const least = 0.97

// ratio prints the ratios of all rounds, and says when they are too low by what is printed.
func ratio(all []float64) string {
	cell := fmt.Sprintf("**%.3f** (%.3f–%.3f)", median(all), quantile(all, .25), quantile(all, .75))
	if math.Round(1000*median(all)) < math.Round(1000*least) {
		cell += ", **missed**"
	}
	return cell
}

// throughput has clients send requests over connections that they keep, for a slice of time.
func throughput(w io.Writer, rounds int) {
	const slice = 25 * time.Millisecond
	fmt.Fprintf(w, "\n## Throughput\n\nRequests a second: medians of %d interleaved rounds of %v, 16 connections, clients on the same machine.\nA ratio is meant to be %v or more; one that is not says *missed*.\n\n| load | httpdrain | net/http | ratio (middle half) | allocations | of net/http |\n| --- | ---: | ---: | ---: | ---: | ---: |\n", rounds, slice, least)
	small := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") })
	type order struct {
		ID    int      `json:"id"`
		Items []string `json:"items"`
	}
	encoding := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		list := make([]order, 10)
		for i := range list {
			list[i] = order{i, []string{"a feather", "a swan", "a song"}}
		}
		json.NewEncoder(w).Encode(list)
	})
	body := bytes.Repeat([]byte("x"), 16<<10)
	large := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write(body) })
	for _, load := range []struct {
		name string
		srv  func() *http.Server
		conf *tls.Config
		h2   bool
	}{
		{"HTTP/1.1, 2 bytes", func() *http.Server { return plain(small) }, nil, false},
		{"HTTP/1.1, ten orders as JSON", func() *http.Server { return plain(encoding) }, nil, false},
		{"HTTP/1.1, 16 KiB", func() *http.Server { return plain(large) }, nil, false},
		{"HTTP/1.1 over TLS, 2 bytes", func() *http.Server { return secure(small) }, insecure, false},
		{"h2c, 2 bytes", func() *http.Server { return cleartext2(small) }, nil, true},
	} {
		run := map[string]func(time.Duration) float64{}
		var ends []func()
		for _, how := range ways {
			w := serve(how, load.srv())
			run[how] = generator(w, load.conf, load.h2, &ends)
			ends = append(ends, func() { w.stop(); <-w.done })
		}
		rates, ratios, allocs := map[string][]float64{}, []float64{}, map[string][]float64{}
		for i := range rounds {
			order := []string{ours, theirs}
			if i%2 == 1 {
				slices.Reverse(order)
			}
			for _, how := range order {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				rate := run[how](slice)
				runtime.ReadMemStats(&after)
				rates[how] = append(rates[how], rate)
				allocs[how] = append(allocs[how], float64(after.Mallocs-before.Mallocs)/(rate*slice.Seconds()))
			}
			ratios = append(ratios, rates[ours][i]/rates[theirs][i])
		}
		fmt.Fprintf(w, "| %s | %.0f | %.0f | %s | %.1f | %.1f |\n", load.name, median(rates[ours]), median(rates[theirs]),
			ratio(ratios), median(allocs[ours]), median(allocs[theirs]))
		for _, end := range ends {
			end()
		}
	}
}

const get = "GET / HTTP/1.1\r\nHost: test\r\n\r\n"

// generator returns a function that sends requests for some time and returns how many a second. What it allocates itself is
// the same for both sides; for HTTP/1 it is nothing.
func generator(w *way, config *tls.Config, h2 bool, ends *[]func()) func(time.Duration) float64 {
	const conns = 16
	var each []func()
	for range conns {
		if h2 {
			c, url := client(w, "h2c")
			each = append(each, func() {
				resp, err := c.Get(url)
				if err != nil {
					panic(err)
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			})
			*ends = append(*ends, c.CloseIdleConnections)
			continue
		}
		conn, err := net.Dial("tcp", w.addr)
		if err != nil {
			panic(err)
		}
		if config != nil {
			conn = tls.Client(conn, config)
		}
		buf := make([]byte, 64<<10)
		request := []byte(get)
		io.WriteString(conn, get)
		size := 0 // of a response: they are all the same
		for n, want := 0, -1; want < 0 || n < want; {
			m, err := conn.Read(buf[n:])
			if err != nil {
				panic(err)
			}
			n += m
			if i := bytes.Index(buf[:n], []byte("\r\n\r\n")); i >= 0 && want < 0 {
				resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(buf[:n])), nil)
				if err != nil {
					panic(err)
				}
				want = i + 4 + int(resp.ContentLength)
				if resp.ContentLength < 0 { // chunked
					for !bytes.HasSuffix(buf[:n], []byte("\r\n0\r\n\r\n")) {
						m, err := conn.Read(buf[n:])
						if err != nil {
							panic(err)
						}
						n += m
					}
					want = n
				}
			}
			size = n
		}
		each = append(each, func() {
			conn.Write(request)
			if _, err := io.ReadFull(conn, buf[:size]); err != nil {
				panic(err)
			}
		})
		*ends = append(*ends, func() { conn.Close() })
	}
	return func(d time.Duration) float64 {
		var wg sync.WaitGroup
		var n atomic.Int64
		began := time.Now()
		for _, f := range each {
			wg.Go(func() {
				for time.Since(began) < d {
					f()
					n.Add(1)
				}
			})
		}
		wg.Wait()
		return float64(n.Load()) / time.Since(began).Seconds()
	}
}

func median(xs []float64) float64 { return quantile(xs, 0.5) }

func quantile(xs []float64, q float64) float64 {
	s := slices.Sorted(slices.Values(xs))
	return s[int(q*float64(len(s)-1)+0.5)]
}

func spread(xs []float64) string {
	return fmt.Sprintf("%.2f ms (%.2f)", median(xs)/1e6, quantile(xs, 1)/1e6)
}
