package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain"
)

// tlsListener measures what clients see when a server is stopped under load and its listener
// returns a *tls.Conn. The listeners of autocert and tsnet do that.
func tlsListener(w io.Writer, shutdowns int) {
	fmt.Fprintf(w, "\n## A listener that returns a *tls.Conn\n\n%d shutdowns each way, of a server that gets its connections from `tls.Listen`, as from autocert or tsnet. %d clients.\n"+
		"Lost and refused by GOAWAY are as in the first table.\n\n", shutdowns, clients)
	fmt.Fprint(w, "| protocol | way | requests | lost | refused by GOAWAY |\n| --- | --- | ---: | ---: | ---: |\n")
	for _, p := range []struct {
		name string
		load func(*running, *tally, *sync.WaitGroup)
	}{{"HTTP/1.1", rawClients(insecure)}, {"HTTP/2", libraryClients("h2", clients, 1)}} {
		for _, how := range ways {
			var t tally
			for range shutdowns {
				stopUnderLoad(func(h http.Handler) *running {
					ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
						Certificates: []tls.Certificate{certificate()}, NextProtos: []string{"h2", "http/1.1"},
					})
					if err != nil {
						panic(err)
					}
					return serveOn(ln, how, plain(h))
				}, p.load, &t)
			}
			fmt.Fprintf(w, "| %s | %s | %d | %d | %d |\n", p.name, how, t.started.Load(), t.lost.Load(), t.goAway.Load())
		}
	}
}

// endlessHeaders measures how long a server takes to stop while clients send a line of a request's
// header every second, and never the end of the header.
func endlessHeaders(w io.Writer) {
	fmt.Fprintf(w, "\n## Headers without an end\n\n%d clients send a line of a header every second, and never the end of the header. The server has no ReadHeaderTimeout.\n"+
		"Counted is `Silent` of `httpdrain.ReadStats`.\n\n", clients)
	fmt.Fprint(w, "| way | drain | exit code | counted |\n| --- | ---: | ---: | ---: |\n")
	for _, how := range ways {
		addr, stop := startProcess(how, 0)
		var sending, wg sync.WaitGroup
		for range clients {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				panic(err)
			}
			sending.Add(1)
			wg.Go(func() {
				defer conn.Close()
				io.WriteString(conn, "GET / HTTP/1.1\r\nHost: test\r\n")
				sending.Done()
				for err := error(nil); err == nil; _, err = io.WriteString(conn, "X-Slow: yes\r\n") {
					time.Sleep(time.Second)
				}
			})
		}
		sending.Wait()
		// in this time, the server reads what the clients have sent of each header
		time.Sleep(2 * time.Second)
		before := httpdrain.ReadStats().Silent
		took, err := stop()
		counted := "–"
		if how == httpdrainServe {
			counted = fmt.Sprint(httpdrain.ReadStats().Silent - before)
		}
		fmt.Fprintf(w, "| %s | %.1f s | %d | %s |\n", how, took.Seconds(), graceful.ExitCode(err), counted)
		wg.Wait()
	}
}
