// Command measure stops HTTP/3 servers under load, by http3drain and by the functions of quic-go,
// and counts the requests that the clients lose. Clients and server are in one process. With 30
// stops, it takes three to six minutes on two processors.
//
//	go run ./integrations/http3drain/internal/measure [-stops 30] [-write]
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/testutils/simnet"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/integrations/http3drain"
	"github.com/swansong-go/swansong/internal/figures"
)

func main() {
	stops := flag.Int("stops", 30, "`number` of stops under load for each way to stop a server")
	write := flag.Bool("write", false, "also write docs/measured/http3drain-figures.md")
	flag.Parse()
	w := figures.NewPage("docs/measured/http3drain-figures.md", head)
	fmt.Fprintf(w, "%s.\n\n", figures.Origin())
	report(w, *stops)
	if *write {
		if err := w.Save(); err != nil {
			fmt.Fprintln(os.Stderr, "measure:", err)
			os.Exit(1)
		}
	}
}

const head = `# http3drain, measured

Produced by ` + "`make bench`" + `; do not edit. See the documentation of the package for what it does, and in which order.

`

func report(w io.Writer, stops int) {
	fmt.Fprintf(w, "%d stops each way, with clients of quic-go that send POST requests that cannot be repeated. Shutdown and Close are those of\n"+
		"quic-go's http3.Server; Shutdown has 10 seconds. Lost: the request was sent on an established connection, and no complete\n"+
		"response came back. Refused: the server reset the stream of a request that was on its way, which tells the client that it\n"+
		"was not processed. Not sent: the connection ended before anything was sent. Closed: the client closed the connection on\n"+
		"which it was sending the request, because it had no other request there when the GOAWAY arrived; no server can prevent\n"+
		"that. The drain is a median.\n\n", stops)
	figures.Row(w, "load", "way", "requests", "lost", "refused", "not sent", "closed", "drain")
	figures.Row(w, "---", "---", "---:", "---:", "---:", "---:", "---:", "---:")
	for _, l := range loads {
		for _, way := range ways {
			t, took := new(tally), []float64{}
			for range stops {
				took = append(took, float64(stopUnderLoad(way, l, t)))
			}
			figures.Row(w, l.name, string(way), fmt.Sprint(t.started.Load()), fmt.Sprint(t.lost.Load()), fmt.Sprint(t.refused.Load()),
				fmt.Sprint(t.unsent.Load()), fmt.Sprint(t.closed.Load()), fmt.Sprintf("%.0f ms", figures.Median(took)/1e6))
		}
	}
}

// A way is the name of what stops a server: http3drain, or a method of quic-go's server.
type way string

const (
	drain    way = "http3drain"
	shutdown way = "Shutdown"
	closing  way = "Close"
)

var ways = []way{drain, shutdown, closing}

// A load is a number of connections, and how many requests are sent at a time on each of them.
type load struct {
	name           string
	conns, streams int
	delay, pause   time.Duration // delay of the network in each direction, and mean pause of a client between two requests
}

var loads = []load{
	{"50 connections", 50, 1, 0, 0},
	{"100 requests at a time on one connection", 1, 100, 0, 0},
	{"200 connections, 50 ms each way, pause 200 ms", 200, 1, 50 * time.Millisecond, 200 * time.Millisecond},
}

// A tally counts the outcomes of requests, as the clients see them.
type tally struct{ started, lost, refused, unsent, closed atomic.Int64 }

// stopUnderLoad stops a server after its first 1,000 requests, counts the outcomes of requests in
// t, and returns how long the stop took.
func stopUnderLoad(how way, l load, t *tally) time.Duration {
	n := &network{router: &simnet.PerfectRouter{}, delay: l.delay}
	defer n.Close()
	var served atomic.Int64
	busy := make(chan struct{})
	srv := &http3.Server{
		TLSConfig:  &tls.Config{Certificates: []tls.Certificate{certificate()}},
		QUICConfig: &quic.Config{},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			if served.Add(1) == 1000 {
				close(busy)
			}
			io.WriteString(w, "ok")
		}),
	}
	pc := n.listen()
	s, done := ctxshutdown.New(context.Background()), make(chan struct{})
	go func() {
		if how == drain {
			defer close(done)
			if err := http3drain.Serve(s, srv, pc); err != nil {
				panic(err)
			}
			return
		}
		srv.Serve(pc)
	}()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var clients sync.WaitGroup
	for range l.conns {
		tr := &http3.Transport{Dial: n.dialer(ctx, pc.LocalAddr())}
		var streams sync.WaitGroup
		for range l.streams {
			streams.Go(func() { sendAll(ctx, tr, "https://"+pc.LocalAddr().String(), l.pause, t) })
		}
		clients.Go(func() {
			streams.Wait()
			tr.Close()
		})
	}
	<-busy
	began := time.Now()
	switch how {
	case drain:
		s.Shutdown()
		<-done
	case shutdown:
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		srv.Shutdown(ctx)
		cancel()
		pc.Close()
	case closing:
		srv.Close()
		pc.Close()
	}
	took := time.Since(began)
	// The server has ended. Cancel the requests that clients still send, because no server would
	// answer them.
	cancel()
	clients.Wait()
	return took
}

// sendAll sends requests that cannot be repeated, one after another, until it cannot connect any
// more.
func sendAll(ctx context.Context, tr *http3.Transport, url string, pause time.Duration, t *tally) {
	for {
		t.started.Add(1)
		var connected, sent atomic.Bool
		trace := &httptrace.ClientTrace{
			GetConn:      func(string) { connected.Store(false) }, // called again if the client must connect a second time for this request
			GotConn:      func(httptrace.GotConnInfo) { connected.Store(true) },
			WroteHeaders: func() { sent.Store(true) },
		}
		// The request has no GetBody, so it cannot be sent a second time.
		req, _ := http.NewRequestWithContext(httptrace.WithClientTrace(context.Background(), trace), "POST", url, struct{ io.Reader }{strings.NewReader("body")})
		resp, err := tr.RoundTrip(req)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		var h3 *http3.Error
		var transport *quic.TransportError
		switch {
		case err == nil:
		case !connected.Load(): // a draining server refused the connection, or no server listens any more
			t.started.Add(-1)
			return
		case errors.As(err, &transport) && transport.ErrorCode == quic.ConnectionRefused:
			// quic-go refuses a connection if 32 others wait to be accepted, also before the stop.
			t.started.Add(-1)
			return
		case !sent.Load():
			t.unsent.Add(1)
		case errors.As(err, &h3) && h3.ErrorCode == http3.ErrCodeRequestRejected:
			t.refused.Add(1)
		case errors.As(err, &h3) && h3.ErrorCode == http3.ErrCodeNoError && !h3.Remote:
			// quic-go 0.65 opens the stream of a request before it counts the stream. If the GOAWAY
			// arrives in between, quic-go finds no stream and closes the connection.
			t.closed.Add(1)
		default:
			t.lost.Add(1)
		}
		if pause > 0 {
			time.Sleep(time.Duration((0.5 + rand.Float64()) * float64(pause)))
		}
		if ctx.Err() != nil {
			return
		}
	}
}
