package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/internal/testkit"
)

// slowNetwork stops a server whose clients are far away and pause between their requests.
func slowNetwork(w io.Writer, clients int, delays, lameDucks []time.Duration) {
	const think = time.Second
	fmt.Fprintf(w, "\n## Lost over a slow network\n\n%d keep-alive clients that send a request every %v on average, from half to one and a half times that. What is sent\n"+
		"arrives after the delay, each way. Each number is the requests lost in one stop, and the time from the stop to the end of\n"+
		"the drain.\n\n| delay | Shutdown |", clients, think)
	for _, d := range lameDucks {
		fmt.Fprintf(w, " lame duck %v |", d)
	}
	fmt.Fprint(w, "\n| ---: | ---: |")
	for range lameDucks {
		fmt.Fprint(w, " ---: |")
	}
	fmt.Fprintln(w)
	for _, delay := range delays {
		fmt.Fprintf(w, "| %v | %s |", delay, stopFarClients(netHTTP, clients, delay, think, 0))
		for _, d := range lameDucks {
			fmt.Fprintf(w, " %s |", stopFarClients(httpdrainServe, clients, delay, think, d))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, whatToSet)
}

const whatToSet = `
Set the lame duck to twice the longest usual pause of a client between two requests, here 3 s. Each connection is told at
a random time in the first half, with its next response, and in the second half every such client sends another request.

A connection whose client sends nothing in that half is closed later, when it has been quiet for the linger. Its client
loses a request that it sends less than the delay before the closing, or less than the delay after it, when it does not
know of it yet. So of n such clients that send a request every t on average, about n × 2 delay / t lose one. Shutdown
closes all connections so: with 1000 clients and 50 ms, 1000 × 100 ms / 1.1 s = 91.
`

func stopFarClients(how string, clients int, delay, think, lameDuck time.Duration) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, "ok")
	})
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan time.Time, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if how == netHTTP {
			srv := plain(handler)
			go srv.Serve(ln)
			<-ctx.Done()
			stopped <- time.Now()
			srv.Shutdown(context.Background())
			return
		}
		err := graceful.Run(ctx, func(s *ctxshutdown.Swansong) error {
			context.AfterFunc(s, func() { stopped <- time.Now() })
			return httpdrain.Serve(s, plain(handler), ln)
		}, graceful.WithSignals(), graceful.WithLameDuck(lameDuck))
		if err != nil {
			panic(err)
		}
	}()
	var t tally
	var wg sync.WaitGroup
	for range clients {
		server, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			panic(err)
		}
		client, far := net.Pipe()
		testkit.ConnectSlowly(far, server, delay)
		wg.Go(func() { farClient(client, think, &t) })
	}
	time.Sleep(3*think + 4*delay)
	stop()
	<-done
	took := time.Since(<-stopped)
	wg.Wait()
	return fmt.Sprintf("%d (%.1f s)", t.lost.Load(), took.Seconds())
}

// farClient sends requests on a connection, with pauses, until the server closes it or says that it
// will.
func farClient(conn net.Conn, think time.Duration, t *tally) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for keep := true; keep; {
		// In the pause, the client notices the end of the connection.
		conn.SetReadDeadline(time.Now().Add(think/2 + rand.N(think)))
		if _, err := in.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		conn.SetReadDeadline(time.Time{})
		keep = exchange(conn, in, t)
	}
}
