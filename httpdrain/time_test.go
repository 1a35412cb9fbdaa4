package httpdrain_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/internal/testkit"
)

// A pipeListener is a listener whose connections are pipes.
type pipeListener struct{ *testkit.Listener }

func listenInMemory() *pipeListener { return &pipeListener{testkit.Listen()} }

func (m *pipeListener) dial(t *testing.T) *peer { return newPeer(t, m.Dial()) }

// since returns the time since t, rounded to hide the two milliseconds that the listener needs to
// close.
func since(t time.Time) time.Duration { return time.Since(t).Round(10 * time.Millisecond) }

func TestServe_DrainEndsWithItsSlowestClient(t *testing.T) {
	const linger = 300 * time.Millisecond
	slow := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/begun" {
			http.NewResponseController(w).Flush()
		}
		time.Sleep(time.Second)
		io.WriteString(w, "ok")
	}
	for _, test := range []struct {
		name   string
		client func(*peer)
		want   time.Duration
	}{
		{"no connection", func(p *peer) { p.Close() }, 0},
		{"a connection that sends nothing", func(p *peer) { p.closed() }, linger},
		{"an idle connection", func(p *peer) { p.send(get); p.answered(); p.closed() }, 1*time.Second + linger},
		{"a request under way", func(p *peer) { p.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n"); p.answered(); p.closed() }, 1 * time.Second},
		{"a response under way", func(p *peer) { p.send("GET /begun HTTP/1.1\r\nHost: test\r\n\r\n"); p.answered(); p.closed() }, 1*time.Second + linger},
		{"half a header", func(p *peer) { p.send("GET / HTT"); p.readResponse(400, "400 Bad Request") }, 2 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ln := listenInMemory()
				v := startOn(t, ln, handler(slow), httpdrain.WithLinger(linger, linger))
				p := ln.dial(t)
				served := make(chan struct{})
				go func() {
					defer close(served)
					test.client(p)
				}()
				synctest.Wait()
				if test.name == "an idle connection" {
					test.want = linger
					time.Sleep(time.Minute)
				}
				began := time.Now()
				v.s.Shutdown()
				v.drained()
				if took := since(began); took != test.want {
					t.Errorf("the drain took %v, want %v", took, test.want)
				}
				<-served
			})
		})
	}
}

// If a client has sent half a header before the stop, it may send the rest until the linger ends,
// even if the linger is longer than headerTimeout.
func TestServe_WaitsForRestOfHeaderThatWasBegunBeforeStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := listenInMemory()
		v := startOn(t, ln, handler(ok), httpdrain.WithLinger(10*time.Second, 10*time.Second))
		p := ln.dial(t)
		p.send(get[:len(get)-2])
		synctest.Wait()
		began := time.Now()
		v.s.Shutdown()
		p.closed()
		v.drained()
		// Round, because the drain takes a few milliseconds more than the linger.
		if took := since(began).Round(100 * time.Millisecond); took != 10*time.Second {
			t.Errorf("the drain took %v, want 10s", took)
		}
	})
}

// A client that sends a line of a header every second and never completes it does not delay the
// drain for more than six seconds. The connection is logged and counted, and Serve returns nil.
func TestServe_ClosesConnectionWithEndlessHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := listenInMemory()
		v := startOn(t, ln, handler(ok))
		p := ln.dial(t)
		p.send(get[:len(get)-2])
		synctest.Wait()
		before := httpdrain.ReadStats()
		began := time.Now()
		v.s.Shutdown()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				time.Sleep(time.Second)
				if _, err := io.WriteString(p.Conn, "X-Slow: yes\r\n"); err != nil {
					return
				}
			}
		}()
		v.drained()
		defer func() { <-done }()
		if took := since(began).Round(100 * time.Millisecond); took != 6*time.Second {
			t.Errorf("the drain took %v, want 6 s", took)
		}
		if got := httpdrain.ReadStats().Silent - before.Silent; got != 1 {
			t.Errorf("%d connections counted as closed in the middle of a header, want 1", got)
		}
	})
}

// A client that needs five seconds for its header, and pauses for a second at a time, is served.
func TestServe_WaitsForSlowHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := listenInMemory()
		v := startOn(t, ln, handler(ok))
		p := ln.dial(t)
		p.send(get[:len(get)-2])
		synctest.Wait()
		v.s.Shutdown()
		for range 5 {
			time.Sleep(time.Second)
			p.send("X-Slow: yes\r\n")
		}
		p.send("\r\n")
		if p.answered() {
			t.Error("the response does not say Connection: close")
		}
		p.closed()
		v.drained()
	})
}

// If a handler returns early, the server reads the rest of the request's body before it writes the
// response. Until the response is written, a guard is held for the request, and a CutError lists
// the request.
func TestServe_HoldsGuardUntilResponseIsWritten(t *testing.T) {
	upload := "POST /upload HTTP/1.1\r\nHost: test\r\nContent-Length: 6\r\n\r\nfea"
	begin := func(t *testing.T) (*service, *peer) {
		ln := listenInMemory()
		v := startOn(t, ln, handler(func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", http.StatusForbidden) }))
		p := ln.dial(t)
		p.send(upload)
		synctest.Wait() // the handler has returned
		time.Sleep(time.Second)
		v.s.Shutdown()
		time.Sleep(time.Minute)
		// Serve and the request each hold a guard.
		if got := v.s.GuardReport().String(); !strings.Contains(got, "http ×2") {
			t.Errorf("wrong guard report: %s", got)
		}
		return v, p
	}
	t.Run("the response is written", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			v, p := begin(t)
			p.send("the")
			p.readResponse(http.StatusForbidden, "no")
			synctest.Wait()
			if got := v.s.GuardReport().String(); !strings.Contains(got, "http ×1") {
				t.Errorf("report after the response: %s", got)
			}
			p.closed()
			v.drained()
		})
	})
	t.Run("Force comes before the response", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			v, p := begin(t)
			v.s.Force(errTooLate)
			err := <-v.done
			var cut *httpdrain.CutError
			if !errors.As(err, &cut) {
				t.Fatalf("Serve returned an unexpected result: %v", err)
			}
			want := []httpdrain.Cut{{Method: "POST", Route: "/upload", Remote: "pipe", Age: time.Minute + time.Second}}
			testkit.Equal(t, "cut", cut.Cut, want)
			p.closed()
			// The guard was released when the connection was closed.
			if err := v.s.Shutdown().Wait(t.Context()); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("half a header follows the response", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ln := listenInMemory()
			v := startOn(t, ln, handler(ok))
			p := ln.dial(t)
			p.send(get)
			p.answered()
			p.send(get[:10])
			synctest.Wait()
			v.s.Shutdown()
			time.Sleep(time.Second)
			v.s.Force(errTooLate)
			err := <-v.done
			var cut *httpdrain.CutError
			if !errors.As(err, &cut) {
				t.Fatalf("Serve returned an unexpected result: %v", err)
			}
			want := []httpdrain.Cut{{Remote: "pipe", Age: time.Second}} // the request that was answered is not listed
			for i := range cut.Cut {
				// Round the ages, because the listener needs two milliseconds to close.
				cut.Cut[i].Age = cut.Cut[i].Age.Round(10 * time.Millisecond)
			}
			testkit.Equal(t, "cut", cut.Cut, want)
		})
	})
}

// If the client begins a header within the linger, it may complete the header after the linger.
func TestServe_AnswersRequestThatBeginsSoonAfterStopAndCompletesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := listenInMemory()
		v := startOn(t, ln, handler(ok))
		p := ln.dial(t)
		synctest.Wait()
		v.s.Shutdown()
		time.Sleep(90 * time.Millisecond)
		p.send(get[:10])
		time.Sleep(90 * time.Millisecond) // 180 ms after the stop: more than the time for which the connection waits for a request
		p.send(get[10:])
		if p.answered() {
			t.Error("the response does not say Connection: close")
		}
		p.closed()
		v.drained()
	})
}

// The drain cannot ask a pipe whether it has unread data. So after the linger the server reads for
// one more millisecond before it closes the pipe, and serves a request whose header begins in that
// time.
func TestServe_AnswersRequestOverPipeInLastMillisecondBeforeClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := listenInMemory()
		v := startOn(t, ln, handler(ok))
		p := ln.dial(t)
		synctest.Wait()
		v.s.Shutdown()
		<-v.drains
		time.Sleep(100*time.Millisecond + 1500*time.Microsecond)
		p.send(get[:9])
		time.Sleep(time.Second)
		p.send(get[9:])
		if p.answered() {
			t.Error("the response does not say Connection: close")
		}
		p.closed()
		v.drained()
	})
}

// A request whose header was complete within the linger is served, even if the user's ConnState
// delays the server by a minute.
func TestServe_AnswersRequestAtStopEvenIfConnStateHookIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := listenInMemory()
		srv := handler(func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body); io.WriteString(w, "ok") })
		srv.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateActive {
				time.Sleep(time.Minute)
			}
		}
		v := startOn(t, ln, srv)
		got := counted(func() {
			p, another := ln.dial(t), ln.dial(t)
			p.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\n")
			another.send(get) // this client sends nothing after the request
			synctest.Wait()
			v.s.Shutdown()
			time.Sleep(2 * time.Minute)
			p.send("ok")
			p.answered()
			p.closed()
			another.answered()
			another.closed()
			v.drained()
		})
		testkit.Equal(t, "counted", got, httpdrain.Stats{Clean: 1})
	})
}

// With WithRetryAfter, a request that is complete 50 ms after the stop, within the linger, is
// served. A request that is complete after the linger gets a 503 with Retry-After.
func TestWithRetryAfter_AnswersRequestLongAfterStopWith503(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := listenInMemory()
		v := startOn(t, ln, handler(ok), httpdrain.WithRetryAfter(1500*time.Millisecond))
		early, late := ln.dial(t), ln.dial(t)
		early.send(get[:10])
		late.send(get[:10])
		synctest.Wait()
		v.s.Shutdown()
		time.Sleep(50 * time.Millisecond)
		early.send(get[10:])
		early.answered()
		time.Sleep(100 * time.Millisecond)
		late.send(get[10:])
		r := late.readResponse(503, "503 the server is shutting down")
		if got := []any{r.Header.Get("Retry-After"), r.Close}; !cmp.Equal(got, []any{"2", true}) {
			t.Errorf("Retry-After, close: %v", got)
		}
		late.closed()
		v.drained()
	})
}

func TestWithPacing_StopsConnectionsOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := listenInMemory()
		stops := make(chan time.Duration, 100)
		var began time.Time
		v := startOn(t, ln, handler(func(w http.ResponseWriter, r *http.Request) {
			scope, _ := ctxshutdown.FromContext(r.Context())
			<-scope.Done()
			stops <- time.Since(began)
			if err := r.Context().Err(); err != nil {
				t.Errorf("the request's context has ended: %v", err)
			}
			ok(w, r)
		}), httpdrain.WithPacing(10))
		for range 20 {
			p := ln.dial(t)
			go func() { p.send(get); p.answered(); p.closed() }()
		}
		idle := ln.dialFrom(t, "another client")
		synctest.Wait()
		began = time.Now()
		v.s.Shutdown()
		idle.closed()
		if took := since(began); took != 100*time.Millisecond {
			t.Errorf("an idle connection is closed after %v, want the linger", took)
		}
		v.drained()
		var times []time.Duration
		for range 20 {
			times = append(times, <-stops)
		}
		slices.Sort(times)
		if times[0] > 10*time.Millisecond {
			t.Errorf("the first scope was stopped after %v, want at once", times[0])
		}
		gaps := map[time.Duration]bool{}
		for i := 1; i < len(times); i++ {
			gap := times[i] - times[i-1]
			gaps[gap] = true
			if gap < 100*time.Millisecond || gap > 150*time.Millisecond {
				t.Errorf("%v between two stops, want 100 to 150 ms", gap)
			}
		}
		if len(gaps) == 1 {
			t.Error("all intervals are equal, want random ones")
		}
		synctest.Wait()
		if v.s.GuardCount() != 0 {
			t.Errorf("left: %v", v.s.GuardReport())
		}
	})
}

// A busyListener is a listener whose Accept returns a new connection at once in every call after
// the channel begin has been closed. Before that it is an ordinary pipeListener.
type busyListener struct {
	*pipeListener
	begin    <-chan struct{}
	accepted int
}

func (l *busyListener) Accept() (net.Conn, error) {
	select {
	case <-l.begin:
	default:
		return l.pipeListener.Accept()
	}
	select {
	case <-l.Closed:
		return nil, net.ErrClosed
	default:
	}
	l.accepted++
	client, server := net.Pipe()
	client.Close()
	return server, nil
}

// If clients connect to a stopped server without a pause, Serve accepts only a limited number of
// these connections.
func TestServe_LimitsNewConnectionsAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := make(chan struct{})
		ln := &busyListener{pipeListener: listenInMemory(), begin: begin}
		v := startOn(t, ln, handler(ok))
		p := ln.dial(t) // ends the call of Accept that began before begin was closed
		p.send(get)
		p.answered()
		close(begin)
		v.s.Shutdown()
		ln.dial(t)
		p.closed()
		v.drained()
		if ln.accepted < 4000 || ln.accepted > 5000 {
			t.Errorf("%d connections were accepted, want about 4096", ln.accepted)
		}
	})
}

// Serve returns only after the user's ConnState was called for the end of each connection and has
// returned.
func TestServe_ReturnsAfterLastCallOfConnState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var returned atomic.Bool
		ln := listenInMemory()
		srv := handler(ok)
		srv.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				time.Sleep(time.Second)
				returned.Store(true)
			}
		}
		v := startOn(t, ln, srv)
		p := ln.dial(t)
		synctest.Wait()
		v.s.Shutdown()
		p.closed()
		v.drained()
		if !returned.Load() {
			t.Error("Serve has returned before ConnState")
		}
	})
}

// With pacing, the scope of an idle connection is stopped at once. If a request still arrives on
// the connection, it is served.
func TestWithPacing_ServesRequestThatArrivesOnStoppedIdleConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := listenInMemory()
		v := startOn(t, ln, handler(func(w http.ResponseWriter, r *http.Request) {
			if err := r.Context().Err(); err != nil {
				t.Errorf("the request's context: %v", err)
			}
			io.WriteString(w, "ok")
		}), httpdrain.WithPacing(1))
		p := ln.dial(t)
		p.send(get)
		p.answered()
		v.s.Shutdown()
		<-v.drains
		time.Sleep(50 * time.Millisecond)
		p.send(get)
		if p.answered() {
			t.Error("the response does not say Connection: close")
		}
		p.closed()
		v.drained()
	})
}

// Force also closes connections whose scope has not been stopped yet because of pacing.
func TestWithPacing_ForceClosesConnectionsNotYetStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := listenInMemory()
		v := startOn(t, ln, handler(func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), httpdrain.WithPacing(0.01))
		for range 3 {
			ln.dial(t).send(get)
		}
		synctest.Wait()
		v.s.Shutdown()
		time.Sleep(time.Second)
		v.s.Force(errTooLate)
		if err := <-v.done; !errors.Is(err, errTooLate) {
			t.Errorf("Serve returned an unexpected result: %v", err)
		}
	})
}

func TestServe_ReturnsWhenListenerFails(t *testing.T) {
	broken := errors.New("broken")
	t.Run("while serving", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ln := listenInMemory()
			leave := make(chan struct{})
			v := startOn(t, ln, handler(func(w http.ResponseWriter, r *http.Request) { <-leave; ok(w, r) }))
			p := ln.dial(t)
			p.send(get)
			synctest.Wait()
			ln.Fail <- broken
			synctest.Wait()
			select {
			case err := <-v.done:
				t.Fatalf("Serve returned before the request was served: %v", err)
			default:
			}
			close(leave)
			p.answered()
			p.closed()
			if err := <-v.done; err != broken {
				t.Errorf("Serve returned an unexpected result: %v", err)
			}
			if v.s.Err() != nil {
				t.Error("the scope that was passed to Serve has been stopped")
			}
		})
	})
	t.Run("while draining", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ln := listenInMemory()
			v := startOn(t, ln, handler(ok))
			p := ln.dial(t)
			synctest.Wait()
			v.s.Shutdown()
			ln.Fail <- broken
			p.send(get)
			p.answered()
			want := "httpdrain: the listener on memory failed after the stop, so connections in the accept queue were lost: broken"
			if err := <-v.done; !errors.Is(err, broken) || err.Error() != want {
				t.Errorf("Serve returned an unexpected result: %v", err)
			}
		})
	})
}

// Although the bytes of a TLS connection are encrypted, the drain treats the connection as quiet
// after its handshake, but not in the middle of the handshake or of a header.
func TestServe_WaitsForHandshakeAndHeaderUnderTLS(t *testing.T) {
	const linger = 300 * time.Millisecond
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, test := range []struct {
			name   string
			before string // what the client sends before the stop
			after  string // what the client sends a second after the stop
			want   time.Duration
		}{
			{"an unused connection", "", "", linger},
			{"a header in pieces", get[:10], get[10:], time.Second},
			{"a header in pieces, after a request", get + get[:10], get[10:], time.Second},
			{"a header that stays half", get[:10], "", 2 * time.Second},
		} {
			t.Run(tls.VersionName(version)+" "+test.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ln := listenInMemory()
					srv := secured(ok)
					srv.TLSConfig.Time = func() time.Time { return certificate().Leaf.NotBefore.Add(time.Hour) }
					v := startOn(t, ln, srv, httpdrain.WithLinger(linger, linger))
					p := ln.dial(t)
					tc := tls.Client(p.Conn, &tls.Config{InsecureSkipVerify: true, MaxVersion: version})
					if err := tc.Handshake(); err != nil {
						t.Fatal(err)
					}
					p.Conn, p.in = tc, bufio.NewReader(tc)
					first := strings.TrimSuffix(test.before, get[:10])
					if p.send(first); first != "" {
						p.answered()
					}
					p.send(strings.TrimPrefix(test.before, first))
					synctest.Wait()
					began := time.Now()
					v.s.Shutdown()
					if test.after != "" {
						time.Sleep(time.Second)
						p.send(test.after)
						p.answered()
					}
					go io.Copy(io.Discard, p.in)
					v.drained()
					if took := since(began); took != test.want {
						t.Errorf("the drain took %v, want %v", took, test.want)
					}
				})
			})
		}
	}
	t.Run("a handshake", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ln := listenInMemory()
			v := startOn(t, ln, secured(ok), httpdrain.WithLinger(linger, linger))
			p := ln.dial(t)
			slow := &slowConn{Conn: p.Conn}
			tc := tls.Client(slow, &tls.Config{InsecureSkipVerify: true})
			done := make(chan error)
			go func() { done <- tc.Handshake() }()
			synctest.Wait() // the client has sent its hello
			v.s.Shutdown()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			slow.done = true
			p.Conn, p.in = tc, bufio.NewReader(tc)
			p.send(get)
			p.answered()
			go io.Copy(io.Discard, p.in)
			v.drained()
		})
	})
}

// A slowConn is a connection on which each write after the first takes longer than the linger,
// until the field done is set.
type slowConn struct {
	net.Conn
	writes int
	done   bool
}

func (c *slowConn) Write(b []byte) (int, error) {
	if c.writes++; c.writes > 1 && !c.done {
		time.Sleep(400 * time.Millisecond)
	}
	return c.Conn.Write(b)
}

func TestServe_WaitsForHijackedConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := listenInMemory()
		hijacked := make(chan net.Conn, 1)
		v := startOn(t, ln, handler(func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
			}
			hijacked <- conn
		}))
		p := ln.dial(t)
		p.send(get)
		conn := <-hijacked
		v.s.Shutdown()
		time.Sleep(time.Hour)
		if len(v.done) > 0 {
			t.Error("Serve has returned")
		}
		conn.Close()
		v.drained()
	})
}

// Serve calls Shutdown of the http.Server when the server has nothing left to serve, even after
// Force, and even if a hijacked connection is left. The test is repeated: Serve waits in a select
// for the drain and for the end of Work, and if both have ended, select chooses at random.
func TestServe_CallsShutdownOfServerEvenAfterForce(t *testing.T) {
	for _, test := range []struct {
		name     string
		hijacked int // number of hijacked connections
	}{{"no connection", 0}, {"a hijacked connection", 1}} {
		t.Run(test.name, func(t *testing.T) {
			for range 30 {
				synctest.Test(t, func(t *testing.T) {
					ln := listenInMemory()
					shutdown := 0
					srv := handler(func(w http.ResponseWriter, r *http.Request) {
						if _, _, err := w.(http.Hijacker).Hijack(); err != nil {
							t.Error(err)
						}
					})
					srv.RegisterOnShutdown(func() { shutdown++ })
					v := startOn(t, ln, srv)
					for range test.hijacked {
						ln.dial(t).send(get)
					}
					synctest.Wait()
					v.s.Force(errTooLate)
					err := <-v.done
					var cut *httpdrain.CutError
					if errors.As(err, &cut) != (test.hijacked > 0) || cut != nil && len(cut.Cut) != test.hijacked {
						t.Errorf("Serve returned an unexpected result: %v", err)
					}
					synctest.Wait() // the registered functions run on their own goroutines
					if shutdown != 1 {
						t.Fatalf("the function registered with RegisterOnShutdown was called %d times, want once", shutdown)
					}
					err = httpdrain.Serve(ctxshutdown.New(t.Context()), srv, listenInMemory())
					if !errors.Is(err, http.ErrServerClosed) {
						t.Errorf("Serve of a server that has drained: %v", err)
					}
				})
				if t.Failed() {
					return
				}
			}
		})
	}
}

// A comparable listener type may contain a value that is not comparable.
func TestServe_AcceptsUncomparableListener(t *testing.T) {
	type wrapper struct{ net.Listener }
	type uncomparable struct {
		*pipeListener
		_ []string
	}
	synctest.Test(t, func(t *testing.T) {
		ln := listenInMemory()
		v := startOn(t, wrapper{uncomparable{pipeListener: ln}}, handler(ok))
		p := ln.dial(t)
		p.send(get)
		p.answered()
		v.s.Shutdown()
		p.closed()
		v.drained()
	})
}
