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
	"github.com/swansong-go/swansong/internal/drainstest"
)

// A memory is a listener whose connections are pipes.
type memory struct{ *drainstest.Listener }

func listenInMemory() *memory { return &memory{drainstest.Listen()} }

func (m *memory) dial(t *testing.T) *peer { return newPeer(t, m.Dial()) }

// since rounds to the linger's order: a listener that has no deadline is given two milliseconds to be empty.
func since(t time.Time) time.Duration { return time.Since(t).Round(10 * time.Millisecond) }

func TestServe_HowLongItTakes(t *testing.T) {
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
		{"nobody", func(p *peer) { p.Close() }, 0},
		{"a connection that sends nothing", func(p *peer) { p.closed() }, linger},
		{"an idle connection", func(p *peer) { p.send(get); p.answered(); p.closed() }, 1*time.Second + linger},
		{"a request under way", func(p *peer) { p.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n"); p.answered(); p.closed() }, 1 * time.Second},
		{"a response under way", func(p *peer) { p.send("GET /begun HTTP/1.1\r\nHost: test\r\n\r\n"); p.answered(); p.closed() }, 1*time.Second + linger},
		{"half a header", func(p *peer) { p.send("GET / HTT"); p.receives(400, "400 Bad Request") }, 2 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ln := listenInMemory()
				v := startOn(t, ln, handler(slow), httpdrain.WithLinger(linger))
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
					t.Errorf("drained in %v, want %v", took, test.want)
				}
				<-served
			})
		})
	}
}

// A linger that is longer than what half a header is given goes for that, too.
func TestServe_HalfAHeaderAndALongLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := listenInMemory()
		v := startOn(t, ln, handler(ok), httpdrain.WithLinger(10*time.Second))
		p := ln.dial(t)
		p.send(get[:len(get)-2])
		synctest.Wait()
		began := time.Now()
		v.s.Shutdown()
		p.closed()
		v.drained()
		if took := since(began).Round(100 * time.Millisecond); took != 10*time.Second { // and some looks into the connection
			t.Errorf("drained in %v, want 10s", took)
		}
	})
}

// A header that keeps arriving is one of a request that still arrives, however long that takes.
func TestServe_HeaderWithoutAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := listenInMemory()
		v := startOn(t, ln, handler(ok))
		p := ln.dial(t)
		p.send(get[:len(get)-2])
		synctest.Wait()
		v.s.Shutdown()
		for range 10 {
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

// A handler that returns early leaves the server waiting for the rest of the body, before it writes the response. That is a
// guard too, until the response is written; and whoever waits for it is named when he is cut.
func TestServe_ResponsesWithoutAHandler(t *testing.T) {
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
		if got := v.s.GuardReport().String(); !strings.Contains(got, "http ×2") { // Serve's and the request's
			t.Errorf("report: %s", got)
		}
		return v, p
	}
	t.Run("answered", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			v, p := begin(t)
			p.send("the")
			p.receives(http.StatusForbidden, "no")
			synctest.Wait()
			if got := v.s.GuardReport().String(); !strings.Contains(got, "http ×1") {
				t.Errorf("report, when it is answered: %s", got)
			}
			p.closed()
			v.drained()
		})
	})
	t.Run("cut", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			v, p := begin(t)
			v.s.Force(errTooLate)
			err := <-v.done
			var cut *httpdrain.CutError
			if !errors.As(err, &cut) {
				t.Fatalf("Serve: %v", err)
			}
			want := []httpdrain.Cut{{Method: "POST", Route: "/upload", Remote: "pipe", Age: time.Minute + time.Second}}
			if diff := cmp.Diff(want, cut.Cut); diff != "" {
				t.Errorf("cut (-want +got):\n%s", diff)
			}
			p.closed()
			if err := v.s.Shutdown().Wait(t.Context()); err != nil { // the guard has gone with the connection
				t.Error(err)
			}
		})
	})
	t.Run("answered, and half of the next", func(t *testing.T) {
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
				t.Fatalf("Serve: %v", err)
			}
			want := []httpdrain.Cut{{Remote: "pipe", Age: time.Second}} // and not the one that has been answered
			for i := range cut.Cut {
				cut.Cut[i].Age = cut.Cut[i].Age.Round(10 * time.Millisecond) // as since does
			}
			if diff := cmp.Diff(want, cut.Cut); diff != "" {
				t.Errorf("cut (-want +got):\n%s", diff)
			}
		})
	})
}

// The linger begins anew with each response, and a request within it is served.
func TestServe_RequestWithinTheLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := listenInMemory()
		v := startOn(t, ln, handler(ok))
		p := ln.dial(t)
		synctest.Wait()
		v.s.Shutdown()
		time.Sleep(90 * time.Millisecond)
		p.send(get[:10])
		time.Sleep(90 * time.Millisecond) // more than the linger after the stop
		p.send(get[10:])
		if p.answered() {
			t.Error("the response does not say Connection: close")
		}
		p.closed()
		v.drained()
	})
}

// Where nobody can look into a connection without reading, it is read from for a moment more before it is closed. What comes
// then is the beginning of a request as any other.
func TestServe_RequestRightAfterTheLinger(t *testing.T) {
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

// A request whose header has come in time is served, however long it takes the server to say so.
func TestServe_ActiveAfterItsTime(t *testing.T) {
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
			another.send(get) // after which nothing more comes
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
		if diff := cmp.Diff(httpdrain.Stats{Clean: 1}, got); diff != "" {
			t.Errorf("counted (-want +got):\n%s", diff)
		}
	})
}

func TestServe_RetryAfter(t *testing.T) {
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
		r := late.receives(503, "503 the server is shutting down")
		if got := []any{r.Header.Get("Retry-After"), r.Close}; !cmp.Equal(got, []any{"2", true}) {
			t.Errorf("Retry-After, close: %v", got)
		}
		late.closed()
		v.drained()
	})
}

func TestServe_Pacing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := listenInMemory()
		told := make(chan time.Duration, 100)
		var began time.Time
		v := startOn(t, ln, handler(func(w http.ResponseWriter, r *http.Request) {
			scope, _ := ctxshutdown.FromContext(r.Context())
			<-scope.Done()
			told <- time.Since(began)
			if err := r.Context().Err(); err != nil {
				t.Errorf("the request's context has ended: %v", err)
			}
			ok(w, r)
		}), httpdrain.WithPacing(10))
		for range 20 {
			p := ln.dial(t)
			go func() { p.send(get); p.answered(); p.closed() }()
		}
		idle := ln.dial(t)
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
			times = append(times, <-told)
		}
		slices.Sort(times)
		if times[0] > 10*time.Millisecond {
			t.Errorf("the first is told after %v, want at once", times[0])
		}
		gaps := map[time.Duration]bool{}
		for i := 1; i < len(times); i++ {
			gap := times[i] - times[i-1]
			gaps[gap] = true
			if gap < 100*time.Millisecond || gap > 150*time.Millisecond {
				t.Errorf("%v between two, want 100 to 150 ms", gap)
			}
		}
		if len(gaps) == 1 {
			t.Error("all the gaps are the same")
		}
		synctest.Wait()
		if v.s.GuardCount() != 0 {
			t.Errorf("left: %v", v.s.GuardReport())
		}
	})
}

// A crowd is a listener at which people never cease to connect, once it is to begin.
type crowd struct {
	*memory
	begin <-chan struct{}
	came  int
}

func (c *crowd) Accept() (net.Conn, error) {
	select {
	case <-c.begin:
	default:
		return c.memory.Accept()
	}
	select {
	case <-c.Closed:
		return nil, net.ErrClosed
	default:
	}
	c.came++
	client, server := net.Pipe()
	client.Close()
	return server, nil
}

// Where people never cease to connect, as many are served after the stop as a queue may have held.
func TestServe_PeopleNeverCeaseToConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := make(chan struct{})
		ln := &crowd{memory: listenInMemory(), begin: begin}
		v := startOn(t, ln, handler(ok))
		p := ln.dial(t) // Accept returns once more
		p.send(get)
		p.answered()
		close(begin)
		v.s.Shutdown()
		ln.dial(t)
		p.closed()
		v.drained()
		if ln.came < 4000 || ln.came > 5000 {
			t.Errorf("%d have come, want about 4096", ln.came)
		}
	})
}

// When the drain is over, the user has been told of the end of each connection.
func TestServe_ConnStateHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told atomic.Bool
		ln := listenInMemory()
		srv := handler(ok)
		srv.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				time.Sleep(time.Second)
				told.Store(true)
			}
		}
		v := startOn(t, ln, srv)
		p := ln.dial(t)
		synctest.Wait()
		v.s.Shutdown()
		p.closed()
		v.drained()
		if !told.Load() {
			t.Error("Serve has returned before ConnState")
		}
	})
}

// Under pacing, who is idle learns of the stop at once, and a request that still arrives is served all the same.
func TestServe_PacingServesWhatStillArrives(t *testing.T) {
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

// Under pacing, the hard tier ends those whose turn has not come, too.
func TestServe_PacingForced(t *testing.T) {
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
			t.Errorf("Serve: %v", err)
		}
	})
}

func TestServe_TheListenerFails(t *testing.T) {
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
			if err := <-v.done; !errors.Is(err, broken) || err.Error() != "httpdrain: serving on memory ended: broken" {
				t.Errorf("Serve: %v", err)
			}
			if v.s.Err() != nil {
				t.Error("the scope that Serve was given is stopped")
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
			want := "httpdrain: the listener on memory failed while the server drained, and whoever was waiting to be accepted is lost: broken"
			if err := <-v.done; !errors.Is(err, broken) || err.Error() != want {
				t.Errorf("Serve: %v", err)
			}
		})
	})
}

// Below TLS nothing is to be seen of a request but records, and yet: a connection that is not used is quiet after its
// handshake, one in the middle of a handshake or of a header is not.
func TestServe_QuietUnderTLS(t *testing.T) {
	const linger = 300 * time.Millisecond
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, test := range []struct {
			name   string
			before string // what is sent before the stop
			after  string // and a second later
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
					v := startOn(t, ln, srv, httpdrain.WithLinger(linger))
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
						t.Errorf("drained in %v, want %v", took, test.want)
					}
				})
			})
		}
	}
	t.Run("a handshake", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ln := listenInMemory()
			v := startOn(t, ln, secured(ok), httpdrain.WithLinger(linger))
			p := ln.dial(t)
			slow := &slowConn{Conn: p.Conn}
			tc := tls.Client(slow, &tls.Config{InsecureSkipVerify: true})
			done := make(chan error)
			go func() { done <- tc.Handshake() }()
			synctest.Wait() // the client's first word is under way
			v.s.Shutdown()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			slow.over = true
			p.Conn, p.in = tc, bufio.NewReader(tc)
			p.send(get)
			p.answered()
			go io.Copy(io.Discard, p.in)
			v.drained()
		})
	})
}

// A slowConn takes longer than the linger for each step after the first, until the handshake is over.
type slowConn struct {
	net.Conn
	steps int
	over  bool
}

func (c *slowConn) Write(b []byte) (int, error) {
	if c.steps++; c.steps > 1 && !c.over {
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

// However it has come to have nothing left to serve, a server that has been told to stop is shut down: also where Force is
// how it was told, and where only a hijacked connection is left for that to cut. Both ends of the drain's wait come at once
// then, so chance must not decide: many times.
func TestServe_ForceEndsTheServer(t *testing.T) {
	for _, test := range []struct {
		name     string
		hijacked int // connections, which are all that is left
	}{{"nobody is left", 0}, {"a hijacked connection is left", 1}} {
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
						t.Errorf("Serve: %v", err)
					}
					synctest.Wait() // what is registered runs on goroutines of its own
					if shutdown != 1 {
						t.Fatalf("what is registered with RegisterOnShutdown has run %d times", shutdown)
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

// A listener of a type that can be compared may still hold what cannot.
func TestServe_UncomparableListener(t *testing.T) {
	type around struct{ net.Listener }
	type sliced struct {
		*memory
		_ []string
	}
	synctest.Test(t, func(t *testing.T) {
		ln := listenInMemory()
		v := startOn(t, around{sliced{memory: ln}}, handler(ok))
		p := ln.dial(t)
		p.send(get)
		p.answered()
		v.s.Shutdown()
		p.closed()
		v.drained()
	})
}
