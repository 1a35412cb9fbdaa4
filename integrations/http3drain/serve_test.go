package http3drain_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/integrations/http3drain"
	"github.com/swansong-go/swansong/internal/testkit"
)

// A request that is being served at the stop gets its response. Meanwhile the server refuses new
// clients at once.
func TestServe_AnswersRunningRequest(t *testing.T) {
	var entered, leave chan struct{}
	srv := newServer(func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-leave
		ok(w, r)
	})
	inBubble(t, srv, func(v *service) {
		entered, leave = make(chan struct{}), make(chan struct{})
		c := v.client()
		answered := make(chan error, 1)
		go func() {
			body, err := get(c, url)
			if body != "ok" && err == nil {
				err = errors.New(body)
			}
			answered <- err
		}()
		<-entered
		v.s.Shutdown()
		time.Sleep(10 * time.Second)
		testkit.Equal(t, "guards", v.s.GuardCount(), 2)
		before := time.Now()
		_, err := v.dial()
		var refused *quic.TransportError
		if !errors.As(err, &refused) || refused.ErrorCode != quic.ConnectionRefused {
			t.Errorf("a new client gets %v, want CONNECTION_REFUSED", err)
		}
		testkit.Equal(t, "a new client is refused after", time.Since(before), 2*delay)
		testkit.Equal(t, "Serve has returned", len(v.done), 0)
		close(leave)
		testkit.Equal(t, "error of the request", <-answered, nil)
		testkit.Equal(t, "Serve returned", <-v.done, nil)
	})
}

// The connection of an idle client that disregards every GOAWAY is closed after eight round trips.
// If the server has sent a response, the client first gets three seconds to read that response.
func TestServe_ClosesIdleClient(t *testing.T) {
	for name, test := range map[string]struct {
		idle, want time.Duration
	}{
		"long idle":        {time.Minute / 4, 16 * delay},
		"just been served": {0, 3*time.Second - delay},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, newServer(ok), func(v *service) {
				p := v.peer()
				p.readResponse(p.send("/"), "ok")
				time.Sleep(test.idle)
				began := time.Now()
				v.s.Shutdown()
				testkit.Equal(t, "Serve returned", <-v.done, nil)
				if took := time.Since(began); took < test.want || took > test.want+test.want/5 {
					t.Errorf("the drain took %v, want about %v", took, test.want)
				}
				p.awaitClose()
			})
		})
	}
}

// If a client goes on opening streams, its requests are served for two seconds after the first
// GOAWAY. Then they are refused, and the connection is closed.
func TestServe_RefusesClientThatDisregardsGoAway(t *testing.T) {
	inBubble(t, newServer(ok), func(v *service) {
		p := v.peer()
		began := time.Now()
		v.s.Shutdown()
		for time.Since(began) < 2*time.Second {
			p.readResponse(p.send("/"), "ok")
		}
		for time.Since(began) < 10*time.Second {
			str, err := p.conn.OpenStream()
			if err != nil {
				break // the connection has been closed
			}
			str.Write(header("/"))
			str.Close()
			go io.Copy(io.Discard, str)
			time.Sleep(delay)
		}
		synctest.Wait()
		testkit.Equal(t, "the drain has ended", len(v.done), 1)
		testkit.Equal(t, "Serve returned", <-v.done, nil)
		p.awaitClose()
	})
}

// When the handler returns, a part of a large response has not been sent yet. The client receives
// all of it, even if the client reads slowly.
func TestServe_DeliversResponseToSlowReader(t *testing.T) {
	const size = 300_000
	srv := newServer(func(w http.ResponseWriter, r *http.Request) { w.Write(make([]byte, size)) })
	inBubble(t, srv, func(v *service) {
		c := v.client()
		resp, err := c.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		v.s.Shutdown()
		n := 0
		for b := make([]byte, size/8); ; {
			time.Sleep(300 * time.Millisecond)
			m, err := io.ReadFull(resp.Body, b)
			if n += m; err != nil {
				break
			}
		}
		resp.Body.Close()
		testkit.Equal(t, "bytes of the body", n, size)
		testkit.Equal(t, "Serve returned", <-v.done, nil)
	})
}

// A response arrives even if the network loses every packet for five seconds when the end of the
// response is sent.
func TestServe_DeliversResponseEvenIfNetworkFailsForSeconds(t *testing.T) {
	var leave chan struct{}
	srv := newServer(func(w http.ResponseWriter, r *http.Request) {
		<-leave
		ok(w, r)
	})
	inBubble(t, srv, func(v *service) {
		leave = make(chan struct{})
		p := v.peer()
		str := p.send("/")
		time.Sleep(time.Second)
		v.s.Shutdown()
		v.router.isDown.Store(true)
		close(leave)
		time.AfterFunc(5*time.Second, func() { v.router.isDown.Store(false) })
		p.readResponse(str, "ok")
		testkit.Equal(t, "Serve returned", <-v.done, nil)
	})
}

// Force closes the connections. Serve returns a list of the requests, the oldest first.
func TestServe_ListsRequestsThatForceCutShort(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		time.Sleep(time.Second)
	})
	mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		if _, err := w.(http3.HTTPStreamer).HTTPStream(); err != nil {
			t.Error(err)
		}
	})
	before := httpdrain.ReadStats()
	srv := newServer(nil)
	srv.Handler = mux
	inBubble(t, srv, func(v *service) {
		p := v.peer()
		p.send("/orders/7")
		time.Sleep(time.Second)
		p.send("/stream")
		time.Sleep(time.Second)
		str, _ := p.conn.OpenStream()
		str.Write(header("/half")[:5])
		time.Sleep(time.Second)
		cause := errors.New("too slow")
		v.s.Force(cause)
		var cut *httpdrain.CutError
		if err := <-v.done; !errors.As(err, &cut) {
			t.Fatalf("Serve returned %v", err)
		}
		remote := p.conn.LocalAddr().String()
		testkit.ErrorIs(t, "error of Serve", cut, cause)
		testkit.Equal(t, "requests", cut.Cut, []httpdrain.Cut{
			{Method: "GET", Route: "GET /orders/{id}", Remote: remote, Age: 3*time.Second - delay},
			{Method: "GET", Route: "/stream", Remote: remote, Age: 2*time.Second - delay, Hijacked: true},
			{Remote: remote, Age: time.Second - delay},
		})
		p.awaitClose()
	})
	after := httpdrain.ReadStats()
	testkit.Equal(t, "requests cut short, counted", after.Cut-before.Cut, uint64(3))
	testkit.Equal(t, "drains cut short, counted", after.CutShort-before.CutShort, uint64(1))
}

// A client that sends one byte of a header per second does not delay the drain beyond its limit.
func TestServe_RefusesIncompleteHeaderAfterLimit(t *testing.T) {
	before := httpdrain.ReadStats()
	inBubble(t, newServer(ok), func(v *service) {
		p := v.peer()
		str, _ := p.conn.OpenStream()
		go func() {
			for _, b := range header(strings.Repeat("x", 200)) {
				if _, err := str.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}()
		time.Sleep(3 * time.Second)
		began := time.Now()
		v.s.Shutdown()
		testkit.Equal(t, "Serve returned", <-v.done, nil)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the drain took %v", took)
		}
		p.awaitClose()
	})
	testkit.Equal(t, "requests refused in the middle of a header, counted", httpdrain.ReadStats().Silent-before.Silent, uint64(1))
}

// If a client began to connect before the stop, its handshake is completed, and the server sends
// the first GOAWAY only after the first request of the client.
func TestServe_ServesClientThatIsConnectingAtStop(t *testing.T) {
	srv := newServer(ok)
	srv.TLSConfig.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		time.Sleep(time.Second / 2)
		return nil, nil
	}
	inBubble(t, srv, func(v *service) {
		time.AfterFunc(2*delay, func() { v.s.Shutdown() }) // the server has received the first packet
		p := v.peer()
		testkit.Equal(t, "s was stopped", v.s.Err() != nil, true)
		time.Sleep(2 * delay)
		testkit.Equal(t, "GOAWAYs before the first request", len(p.goAway), 0)
		p.readResponse(p.send("/"), "ok")
		testkit.Equal(t, "first GOAWAY", <-p.goAway, uint64(1<<62-4))
		testkit.Equal(t, "Serve returned", <-v.done, nil)
	})
}

// A client that sends the first packet of its handshake and no more does not delay the drain for
// longer than a second.
func TestServe_WaitsForHandshakeAtMostASecond(t *testing.T) {
	inBubble(t, newServer(ok), func(v *service) {
		v.router.isCut.Store(true)
		go v.dial()
		time.Sleep(2 * delay)
		began := time.Now()
		v.s.Shutdown()
		testkit.Equal(t, "Serve returned", <-v.done, nil)
		testkit.Equal(t, "the drain took", time.Since(began), time.Second)
	})
}

// Force does not wait for a handshake that is under way. No request was cut short, so Serve returns
// nil.
func TestServe_ReturnsAtForceDuringHandshake(t *testing.T) {
	inBubble(t, newServer(ok), func(v *service) {
		v.router.isCut.Store(true)
		go v.dial()
		time.Sleep(2 * delay)
		began := time.Now()
		v.s.Force(nil)
		testkit.Equal(t, "Serve returned", <-v.done, nil)
		testkit.Equal(t, "the drain took", time.Since(began), time.Duration(0))
	})
}

// A handler can stop the server, without its parent scope, by the scope in the context of its
// request. The request is still answered.
func TestServe_DrainsWhenHandlerStopsScope(t *testing.T) {
	srv := newServer(func(w http.ResponseWriter, r *http.Request) {
		scope, _ := ctxshutdown.FromContext(r.Context())
		scope.Shutdown()
		time.Sleep(time.Second)
		ok(w, r)
	})
	inBubble(t, srv, func(v *service) {
		p := v.peer()
		p.readResponse(p.send("/quit"), "ok")
		p.awaitClose()
		synctest.Wait()
		testkit.Equal(t, "Serve has returned", len(v.done), 1)
		testkit.Equal(t, "Serve returned", <-v.done, nil)
		testkit.Equal(t, "the parent scope was stopped", v.s.Err() != nil, false)
	})
}

// A client that has read its response and closes its connection ends the linger for that response.
// No goroutine of the server remains.
func TestServe_StopsWaitingWhenClientClosesConnectionAfterResponse(t *testing.T) {
	inBubble(t, newServer(ok), func(v *service) {
		p := v.peer()
		p.readResponse(p.send("/"), "ok")
		began := time.Now()
		v.s.Shutdown()
		time.Sleep(2 * time.Second)
		testkit.Equal(t, "Serve has returned", len(v.done), 0)
		p.conn.CloseWithError(0, "")
		testkit.Equal(t, "Serve returned", <-v.done, nil)
		testkit.Equal(t, "the drain took", time.Since(began), 2*time.Second+delay)
	})
}

type key string

// The context of a request derives from Work: the stop does not cancel it, and Force cancels it
// with the cause of Force. It has the values of ConnContext, and the server as a value.
func TestServe_RequestContextEndsAtForceNotAtStop(t *testing.T) {
	var contexts chan context.Context
	srv := newServer(func(w http.ResponseWriter, r *http.Request) {
		contexts <- r.Context()
		<-r.Context().Done()
	})
	srv.ConnContext = func(ctx context.Context, _ *quic.Conn) context.Context {
		return context.WithValue(ctx, key("a"), "b")
	}
	inBubble(t, srv, func(v *service) {
		contexts = make(chan context.Context, 1)
		v.peer().send("/")
		ctx := <-contexts
		testkit.Equal(t, "value of ConnContext", ctx.Value(key("a")), any("b"))
		if ctx.Value(http3.ServerContextKey) != srv {
			t.Error("the context has another http3.Server")
		}
		scope, _ := ctxshutdown.FromContext(ctx)
		v.s.Shutdown()
		time.Sleep(time.Second)
		testkit.Equal(t, "the scope of the request was stopped", scope.Err() != nil, true)
		testkit.Equal(t, "error of the context after the stop", ctx.Err(), nil)
		cause := errors.New("too slow")
		v.s.Force(cause)
		<-ctx.Done()
		testkit.ErrorIs(t, "cause of the context after Force", context.Cause(ctx), cause)
		<-v.done
	})
}

// The context of a request ends when its client disconnects.
func TestServe_RequestContextEndsWhenClientDisconnects(t *testing.T) {
	var contexts chan context.Context
	srv := newServer(func(w http.ResponseWriter, r *http.Request) {
		contexts <- r.Context()
		<-r.Context().Done()
	})
	inBubble(t, srv, func(v *service) {
		p := v.peer()
		contexts = make(chan context.Context, 1)
		p.send("/")
		ctx := <-contexts
		p.conn.CloseWithError(0, "")
		<-ctx.Done()
		v.s.Shutdown()
		testkit.Equal(t, "Serve returned", <-v.done, nil)
	})
}

// In the lame duck phase each client is told to open no more streams, and its requests are served.
func TestServe_AnnouncesGoAwayInLameDuck(t *testing.T) {
	for name, opts := range map[string][]http3drain.Option{"default": nil, "KeepInLameDuck": {http3drain.KeepInLameDuck()}} {
		t.Run(name, func(t *testing.T) {
			serve := func(v *service, pc net.PacketConn) error {
				ctx, cancel := context.WithCancel(v.s.Work())
				defer cancel()
				go func() { <-v.stop; cancel() }()
				return graceful.Run(ctx, func(s *ctxshutdown.Swansong) error {
					return http3drain.Serve(s, newServer(ok), pc, opts...)
				}, graceful.WithSignals(), graceful.WithLameDuck(4*time.Second))
			}
			inBubbleWith(t, serve, func(v *service) {
				p := v.peer()
				close(v.stop)
				time.Sleep(2*time.Second + 2*delay)
				testkit.Equal(t, "GOAWAYs in the first half of the lame duck phase", len(p.goAway), 1-len(opts))
				p.readResponse(p.send("/"), "ok")
				late := v.peer()
				testkit.Equal(t, "GOAWAYs before the first request of a client that connects later", len(late.goAway), 0)
				late.readResponse(late.send("/"), "ok")
				time.Sleep(delay)
				testkit.Equal(t, "GOAWAYs after its first request", len(late.goAway), 1-len(opts))
				late.readResponse(late.send("/"), "ok")
				testkit.Equal(t, "first GOAWAY", <-p.goAway, uint64(1<<62-4))
				testkit.Equal(t, "first GOAWAY of the late client", <-late.goAway, uint64(1<<62-4))
				testkit.Equal(t, "Run returned", <-v.done, nil)
			})
		})
	}
}
