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
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/internal/testkit"
)

// slowNetwork stops a server whose clients are far away and pause between their requests.
func slowNetwork(w io.Writer, clients int, pauses, delays, lameDucks []time.Duration) {
	fmt.Fprintf(w, "\n## Lost over a slow network\n\n%d keep-alive clients, each with an address of its own, pause between their requests, from half to one and a half\n"+
		"times the pause in the table. What is sent arrives after the delay, each way. Each number is the requests lost in one\n"+
		"stop, and the time from the end of the lame duck to the end of the drain.\n\n| pause | delay | Shutdown |", clients)
	for _, d := range lameDucks {
		fmt.Fprintf(w, " lame duck %v |", d)
	}
	fmt.Fprint(w, "\n| ---: | ---: | ---: |")
	for range lameDucks {
		fmt.Fprint(w, " ---: |")
	}
	fmt.Fprintln(w)
	for _, pause := range pauses {
		for _, delay := range delays {
			fmt.Fprintf(w, "| %v | %v | %s |", pause, delay, stopFarClients(netHTTP, clients, delay, pause, 0))
			for _, d := range lameDucks {
				fmt.Fprintf(w, " %s |", stopFarClients(httpdrainServe, clients, delay, pause, d))
			}
			fmt.Fprintln(w)
		}
	}
	fmt.Fprint(w, whatToSet)
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		fmt.Fprintf(w, "\nThe load average of the machine was %s in the last 15 minutes. If it is above the number of processors, the delays\n"+
			"are longer than the table says, and more requests are lost.\n", strings.Fields(string(load))[2])
	}
}

const whatToSet = `
Set the lame duck to twice the longest usual pause of a client between two requests: 3 s for the pause of 1 s, whose
longest is 1.5 s, and 15 s for the pause of 5 s. Each connection is told at a random time in the first half, with its
next response, and in the second half every such client sends another request.

A connection whose client sends nothing in that half is closed later, when it has been quiet for the linger. Its client
loses a request that it sends less than the delay before the closing, or less than the delay after it, when it does not
know of it yet. So of n such clients that send a request every t on average, about n × 2 delay / t lose one. Shutdown
closes all connections so. With 1000 clients and 50 ms, that is 1000 × 100 ms / 1.1 s = 91 for the pause of 1 s, and
1000 × 100 ms / 5.1 s = 20 for the pause of 5 s. Without a pause, t is the round trip, and almost every client loses
one.

Without a lame duck, httpdrain closes the connections whose client pauses for longer than the linger, at most 3 s
(WithLinger), so with the pause of 5 s it loses about as many requests as Shutdown.
`

func stopFarClients(how string, clients int, delay, think, lameDuck time.Duration) string {
	addr, stop := startProcess(how, lameDuck)
	var t tally
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for i := range clients {
		server, err := dialAs(i, addr)
		if err != nil {
			panic(err)
		}
		client, far := net.Pipe()
		testkit.ConnectSlowly(far, server, delay)
		wg.Go(func() {
			<-begin // wait until all clients are connected: requests would slow down the remaining connects
			farClient(client, think, &t)
		})
	}
	close(begin)
	time.Sleep(time.Second + 2*think + 4*delay)
	took, err := stop()
	if err != nil {
		panic(err)
	}
	wg.Wait()
	return fmt.Sprintf("%d (%.1f s)", t.lost.Load(), took.Seconds())
}

// dialAs connects to addr from an address that is different for each i, because the clients are
// different machines.
func dialAs(i int, addr string) (net.Conn, error) {
	var d net.Dialer
	if runtime.GOOS == "linux" { // on other systems, 127.0.0.1 is often the only loopback address
		d.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 1, byte(i>>8), byte(i))}
	}
	return d.Dial("tcp", addr)
}

// startProcess serves HTTP with graceful.Run and httpdrain if server is httpdrainServe, or with
// net/http alone if server is netHTTP. The function stop ends the server, and returns the time from
// the end of the lame duck to the end of the drain, and the error that main would get.
func startProcess(server string, lameDuck time.Duration) (addr string, stop func() (time.Duration, error)) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	srv := plain(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, "ok")
	}))
	if server == netHTTP {
		go srv.Serve(ln)
		return ln.Addr().String(), func() (time.Duration, error) {
			began := time.Now()
			err := srv.Shutdown(context.Background())
			return time.Since(began), err
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan time.Time, 1)
	done := make(chan error)
	go func() {
		done <- graceful.Run(ctx, func(s *ctxshutdown.Swansong) error {
			context.AfterFunc(s, func() { stopped <- time.Now() })
			return httpdrain.Serve(s, srv, ln)
		}, graceful.WithSignals(), graceful.WithLameDuck(lameDuck))
	}()
	return ln.Addr().String(), func() (time.Duration, error) {
		cancel()
		err := <-done
		return time.Since(<-stopped), err
	}
}

// farClient sends requests on a connection, with pauses, until the server closes it or says that it
// will.
func farClient(conn net.Conn, think time.Duration, t *tally) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for keep := true; keep; {
		// Read during the pause between two requests, so that the client notices if the server
		// closes the connection.
		conn.SetReadDeadline(time.Now().Add(think/2 + rand.N(think+1)))
		if _, err := in.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		conn.SetReadDeadline(time.Time{})
		keep = exchange(conn, in, t)
	}
}
