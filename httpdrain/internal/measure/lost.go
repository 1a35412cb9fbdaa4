package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/internal/figures"
)

// A tally counts the outcomes of requests, as the clients see them.
type tally struct{ started, lost, refused, goAway, unsent atomic.Int64 }

const (
	clients = 50
	streams = 100 // number of concurrent requests when all clients share one connection
)

func lost(w io.Writer, shutdowns int) {
	fmt.Fprintf(w, "\n## Lost\n\n%d shutdowns each way, under the load of %d clients, or of %d that share one connection. No request can be repeated. Lost:\n"+
		"bytes were sent on an established connection and no complete response came back. A request refused by a GOAWAY was\n"+
		"sent and not processed, and the client learns that. Not sent: the client's connection ended before it sent anything.\n\n", shutdowns, clients, streams)
	fmt.Fprintf(w, "| load | way | requests | lost | refused | refused by GOAWAY | not sent | drain, median |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, load := range []struct {
		name string
		make func(http.Handler) *http.Server
		run  func(*running, *tally, *sync.WaitGroup) // this function starts the clients
	}{
		{"HTTP/1.1 keep-alive POST, raw sockets", plain, rawClients(nil)},
		{"HTTP/1.1 keep-alive POST over TLS, raw sockets", secure, rawClients(insecure)},
		{"HTTP/2 over TLS, net/http", secure, libraryClients("h2", clients, 1)},
		{"h2c, net/http", cleartext2, libraryClients("h2c", clients, 1)},
		{"HTTP/2 over TLS, net/http, one connection", secure, libraryClients("h2", 1, streams)},
		{"h2c, net/http, one connection", cleartext2, libraryClients("h2c", 1, streams)},
	} {
		totals := map[string]*tally{httpdrainServe: {}, netHTTP: {}}
		times := map[string][]float64{}
		for range shutdowns {
			for _, how := range ways {
				start := func(h http.Handler) *running { return serve(how, load.make(h)) }
				times[how] = append(times[how], float64(stopUnderLoad(start, load.run, totals[how])))
			}
		}
		for _, how := range ways {
			t := totals[how]
			fmt.Fprintf(w, "| %s | %s | %d | %d | %d | %d | %d | %.1f ms |\n", load.name, how, t.started.Load(), t.lost.Load(), t.refused.Load(), t.goAway.Load(), t.unsent.Load(), figures.Median(times[how])/1e6)
		}
	}
}

// stopUnderLoad starts a server and its clients, and stops the server when it has got 1000
// requests. It returns the time that the stop takes.
func stopUnderLoad(start func(http.Handler) *running, load func(*running, *tally, *sync.WaitGroup), t *tally) time.Duration {
	var n atomic.Int64
	busy := make(chan struct{})
	w := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if n.Add(1) == 1000 {
			close(busy)
		}
		io.WriteString(w, "ok")
	}))
	var wg sync.WaitGroup
	load(w, t, &wg)
	<-busy
	began := time.Now()
	w.stop()
	<-w.done
	took := time.Since(began)
	wg.Wait()
	return took
}

const post = "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\nbody"

func rawClients(config *tls.Config) func(*running, *tally, *sync.WaitGroup) {
	return func(w *running, t *tally, wg *sync.WaitGroup) {
		for range clients {
			wg.Go(func() { rawClient(w, config, t) })
		}
	}
}

// rawClient sends requests on one connection after another until it cannot connect any more. It
// never sends a request twice.
func rawClient(w *running, config *tls.Config, t *tally) {
	for {
		conn, err := net.Dial("tcp", w.addr)
		if err != nil {
			t.refused.Add(1)
			return
		}
		if config != nil {
			tc := tls.Client(conn, config)
			if tc.Handshake() != nil { // the handshake has failed, so no request was sent
				conn.Close()
				t.refused.Add(1)
				continue
			}
			conn = tc
		}
		in := bufio.NewReader(conn)
		for keep := true; keep; {
			keep = exchange(conn, in, t)
		}
		conn.Close()
	}
}

// exchange sends a request on conn and reads the response from in. It reports whether the
// connection can be used again.
func exchange(conn net.Conn, in *bufio.Reader, t *tally) (keep bool) {
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
		return false
	}
	return !resp.Close
}

// libraryClients returns a function that starts n clients of net/http. Each has one connection at a
// time, on which it sends as many requests at a time as streams says.
func libraryClients(protocol string, n, streams int) func(*running, *tally, *sync.WaitGroup) {
	return func(w *running, t *tally, wg *sync.WaitGroup) {
		for range n {
			c, url := client(w, protocol)
			for range streams {
				wg.Go(func() {
					defer c.CloseIdleConnections()
					sendAll(c, url, t)
				})
			}
		}
	}
}

// sendAll sends requests that net/http cannot repeat, one after another, until c cannot connect any
// more.
func sendAll(c *http.Client, url string, t *tally) {
	for {
		t.started.Add(1)
		var sent atomic.Bool
		ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }})
		// The request has no GetBody, so net/http cannot send it a second time.
		req, _ := http.NewRequestWithContext(ctx, "POST", url, struct{ io.Reader }{strings.NewReader("body")})
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
		case !sent.Load():
			t.unsent.Add(1)
		case strings.Contains(err.Error(), "GOAWAY") || strings.Contains(err.Error(), "cannot retry err") && strings.Contains(err.Error(), "Request.GetBody"):
			t.goAway.Add(1)
		default:
			t.lost.Add(1)
		}
	}
}
