package httpdrain_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/internal/testkit"
)

// counted calls f and returns by how much the counters have increased.
func counted(f func()) httpdrain.Stats {
	before := httpdrain.ReadStats()
	f()
	after := httpdrain.ReadStats()
	return httpdrain.Stats{
		Clean:    after.Clean - before.Clean,
		CutShort: after.CutShort - before.CutShort,
		Cut:      after.Cut - before.Cut,
		Silent:   after.Silent - before.Silent,
		Refused:  after.Refused - before.Refused,
	}
}

// A connection that the drain closes in the middle of a header is logged and counted, because a
// request may have been lost. No other closed connection is logged or counted.
func TestServe_LogsAndCountsConnectionsClosedInMiddleOfHeader(t *testing.T) {
	for _, test := range []struct {
		name   string
		client func(*peer)
		silent string // the age of the incomplete header, as in the log; empty if nothing is logged
	}{
		{"in the first line", func(p *peer) { p.send("GET / HTT") }, "2s"},
		{"in a later line", func(p *peer) { p.send(get[:len(get)-2]) }, "2s"},
		{"after a pause", func(p *peer) { p.send("GET / HTT"); time.Sleep(time.Second); p.send("P/1.1\r\n") }, "3s"},
		{"after a response", func(p *peer) { p.send(get); p.answered(); p.send("GE") }, "2s"},
		{"completed in time", func(p *peer) { p.send(get[:9]); time.Sleep(time.Second); p.send(get[9:]); p.answered() }, ""},
		{"closed by the client", func(p *peer) { p.send("GET / HTT"); p.Close() }, ""},
		{"closed by the client later", func(p *peer) { p.send("GET / HTT"); time.Sleep(time.Second); p.Close() }, ""},
		{"idle", func(p *peer) { p.send(get); p.answered() }, ""},
		{"nothing", func(*peer) {}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out strings.Builder
				log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
					switch a.Key {
					case "time":
						return slog.Attr{}
					case "age":
						return slog.Duration("age", a.Value.Duration().Round(100*time.Millisecond))
					}
					return a
				}}))
				ln := listenInMemory()
				v := startOn(t, ln, handler(ok), httpdrain.WithLogger(log))
				p := ln.dial(t)
				got := counted(func() {
					go func() {
						test.client(p)
						io.Copy(io.Discard, p.in)
					}()
					synctest.Wait()
					time.Sleep(50 * time.Millisecond)
					v.s.Shutdown()
					v.drained()
				})
				want, warning := httpdrain.Stats{Clean: 1}, ""
				if test.silent != "" {
					want.Silent = 1
					warning = "level=WARN msg=\"httpdrain: connection closed in the middle of a request header\" server=http remote=pipe age=" + test.silent + "\n"
				}
				testkit.Equal(t, "counted", got, want)
				testkit.Equal(t, "log", out.String(), warning)
			})
		})
	}
}

func TestReadStats_CountsDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leave := make(chan struct{})
		ln := listenInMemory()
		v := startOn(t, ln, handler(func(http.ResponseWriter, *http.Request) { <-leave }), httpdrain.WithRetryAfter(time.Second))
		idle, one, two := ln.dial(t), ln.dial(t), ln.dial(t)
		one.send(get)
		two.send(get)
		synctest.Wait()
		got := counted(func() {
			v.s.Shutdown()
			time.Sleep(90 * time.Millisecond)
			idle.send("G") // sends the beginning of a header, so that the linger does not end this connection
			time.Sleep(time.Second)
			idle.send(get[1:])
			idle.readResponse(http.StatusServiceUnavailable, "503 the server is shutting down")
			v.s.Force(errTooLate)
			<-v.done
		})
		close(leave)
		testkit.Equal(t, "counted", got, httpdrain.Stats{CutShort: 1, Cut: 2, Refused: 1})
	})
}

// Stats count how drains ended, for example to alert on requests cut short.
func ExampleReadStats() {
	s := ctxshutdown.New(context.Background())
	ln := listenForExample()
	served := make(chan error)
	before := httpdrain.ReadStats()
	go func() { served <- httpdrain.Serve(s, &http.Server{Handler: hello(s)}, ln) }()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: half") // the rest of the header is never sent
	fetch(http.DefaultClient, "http://"+ln.Addr().String())

	fmt.Println("drained:", <-served)
	after := httpdrain.ReadStats()
	fmt.Println("clean:", after.Clean-before.Clean, "silent:", after.Silent-before.Silent)
	// Output:
	// 200 hello
	// drained: <nil>
	// clean: 1 silent: 1
}
