package httpdrain_test

import (
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A frame2 is an HTTP/2 frame that a client has received.
type frame2 struct {
	typ, flags byte
	stream     uint32
	payload    string
}

// next reads HTTP/2 frames up to the next one of a type in want, and returns that one.
func (p *peer) next(want ...byte) frame2 {
	p.t.Helper()
	for {
		var h [9]byte
		if _, err := io.ReadFull(p.in, h[:]); err != nil {
			p.t.Fatalf("read %v, want a frame of type %v", err, want)
		}
		payload := make([]byte, int(h[0])<<16|int(h[1])<<8|int(h[2]))
		if _, err := io.ReadFull(p.in, payload); err != nil {
			p.t.Fatal(err)
		}
		for _, typ := range want {
			if h[3] == typ {
				return frame2{typ, h[4], binary.BigEndian.Uint32(h[5:]), string(payload)}
			}
		}
	}
}

// lastStreamOf returns the last stream that a GOAWAY frame names.
func lastStreamOf(f frame2) uint32 { return binary.BigEndian.Uint32([]byte(f.payload)) }

// At the stop, the client learns by a first GOAWAY that it should open no more streams. Requests
// that the client has sent before the first GOAWAY arrives are served. Only then does a second
// GOAWAY name the last stream.
func TestServe_SendsFinalGoAwayOnlyAfterClientSawFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := listenInMemory()
		v := startOn(t, ln, plain2(ok))
		p := ln.dial(t)
		p.send(preface + frame(4, 0, "") + request2(1, "/"))
		p.next(0)
		synctest.Wait()
		v.s.Shutdown()
		if f := p.next(7); lastStreamOf(f) != 1<<31-1 || f.payload[4:] != "\x00\x00\x00\x00" {
			t.Errorf("the first GOAWAY is %q, want the largest stream and no error", f.payload)
		}
		ping := p.next(6)
		p.send(request2(3, "/")) // a request that was on its way when the first GOAWAY arrived
		if f := p.next(0); f.stream != 3 {
			t.Errorf("a response on stream %d, want 3", f.stream)
		}
		time.Sleep(time.Second)
		began := time.Now()
		p.send(frame(6, 1, ping.payload))
		f := p.next(7)
		if got := lastStreamOf(f); got != 3 {
			t.Errorf("the second GOAWAY names stream %d, want 3", got)
		}
		if took, want := time.Since(began), 100*time.Millisecond; took != want {
			t.Errorf("the second GOAWAY follows %v after the answer to the PING, want the linger, %v", took, want)
		}
		go io.Copy(io.Discard, p.in)
		v.drained()
	})
}

// Before the first GOAWAY, the server holds back its responses until the client has sent nothing
// for 5 ms, or for 100 ms at most. docs/internals/process.md#http2
func TestServe_SendsFirstGoAwayWhenClientIsQuiet(t *testing.T) {
	for _, test := range []struct {
		name             string
		requests         int // number of requests that the client sends during the drain, one every 4 ms
		writeByteTimeout time.Duration
		want             time.Duration
	}{
		{"no request", 0, 0, 5 * time.Millisecond},
		{"three requests", 3, 0, 20 * time.Millisecond},
		{"requests without a pause", 60, 0, 100 * time.Millisecond},
		{"a WriteByteTimeout, twice as long as the pause before the GOAWAY", 60, 60 * time.Millisecond, 30 * time.Millisecond},
		{"a WriteByteTimeout that leaves no time for a pause", 60, 9 * time.Millisecond, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ln := listenInMemory()
				srv := plain2(ok)
				srv.HTTP2 = &http.HTTP2Config{WriteByteTimeout: test.writeByteTimeout}
				v := startOn(t, ln, srv)
				p := ln.dial(t)
				p.send(preface + frame(4, 0, "") + request2(1, "/"))
				p.next(0)
				synctest.Wait()
				v.s.Shutdown()
				<-v.drains
				began := time.Now()
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					for i := range test.requests {
						time.Sleep(4 * time.Millisecond)
						p.send(request2(byte(3+2*i), "/"))
					}
				}()
				if f := p.next(1, 7); f.typ != 7 {
					t.Errorf("a frame of type %d before the GOAWAY, want no response", f.typ)
				}
				if took := time.Since(began); took != test.want {
					t.Errorf("the GOAWAY follows %v after the start of the drain, want %v", took, test.want)
				}
				ping := p.next(6)
				for range test.requests {
					p.next(0) // every request gets its response
				}
				<-sent
				p.send(frame(6, 1, ping.payload))
				go io.Copy(io.Discard, p.in)
				v.drained()
			})
		})
	}
}

// The first GOAWAY is not put between the frames of one header.
func TestServe_PutsNoGoAwayBetweenFramesOfHeader(t *testing.T) {
	const endHeaders = 4
	synctest.Test(t, func(t *testing.T) {
		ln := listenInMemory()
		v := startOn(t, ln, plain2(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Long", strings.Repeat("x", 100<<10))
			io.WriteString(w, "ok")
		}))
		p := ln.dial(t)
		p.send(preface + frame(4, 0, ""))
		p.next(4) // skip the server's SETTINGS frame
		p.next(4) // skip the acknowledgement of the client's SETTINGS frame
		p.send(request2(1, "/"))
		synctest.Wait() // the server has begun to write the header, and waits for the client to read
		v.s.Shutdown()
		<-v.drains
		synctest.Wait()
		f := p.next(0, 1, 6, 7, 9)
		for ; f.flags&endHeaders == 0; f = p.next(0, 1, 6, 7, 9) {
			if f.typ != 1 && f.typ != 9 {
				t.Fatalf("a frame of type %d within a header", f.typ)
			}
		}
		p.next(7)
		go io.Copy(io.Discard, p.in)
		v.drained()
	})
}

// A client that has 100 requests at a time on one connection loses no request at the stop, although
// no request can be repeated: each request gets its response or is not sent at all.
func TestServe_LosesNoStreamOfSharedHTTP2Connection(t *testing.T) {
	for _, p := range protocols[2:] {
		t.Run(p.name, func(t *testing.T) {
			var requests atomic.Int32
			busy := make(chan struct{})
			srv := p.make(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				if requests.Add(1) == 1000 {
					close(busy)
				}
				io.WriteString(w, "ok")
			})
			v := start(t, srv)
			a := newAgent(t, v, srv, p.proto)
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() {
					for {
						var sent atomic.Bool
						ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
							WroteHeaders: func() { sent.Store(true) },
						})
						// The type of the body prevents net/http from sending it again.
						req, _ := http.NewRequestWithContext(ctx, http.MethodPost, a.url, struct{ io.Reader }{strings.NewReader("work")})
						resp, err := a.Do(req)
						if err != nil {
							// A request of which nothing was sent is not lost: the client could not
							// connect any more, or its connection was already closed.
							if sent.Load() {
								t.Errorf("a request was lost: %v", err)
							}
							return
						}
						if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "ok" {
							t.Errorf("a request was lost: response %q, error %v", b, err)
						}
						resp.Body.Close()
					}
				})
			}
			<-busy
			v.s.Shutdown()
			wg.Wait()
			v.drained()
		})
	}
}

// The requests of an HTTP/2 connection have the context, the state of TLS and the hooks of the
// user's server, although httpdrain serves them with an http.Server of its own.
func TestServe_HTTP2UsesSettingsOfUsersServer(t *testing.T) {
	type seen struct {
		Server, LocalAddr, TLS bool
		Options                int
		States                 map[http.ConnState]bool
	}
	for _, p := range protocols[2:] {
		t.Run(p.name, func(t *testing.T) {
			var got seen
			var srv *http.Server
			srv = p.make(func(w http.ResponseWriter, r *http.Request) {
				got.Server = r.Context().Value(http.ServerContextKey) == srv
				got.LocalAddr = r.Context().Value(http.LocalAddrContextKey) != nil
				got.TLS = r.TLS != nil && r.TLS.HandshakeComplete
			})
			states := make(chan http.ConnState, 100)
			srv.ConnState = func(_ net.Conn, state http.ConnState) { states <- state }
			v := start(t, srv)
			a := newAgent(t, v, srv, p.proto)
			a.get("/", p.proto)
			req, _ := http.NewRequest(http.MethodOptions, a.url, nil)
			req.URL.Opaque = "*"
			resp, err := a.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			got.Options = resp.StatusCode
			a.CloseIdleConnections()
			v.s.Shutdown()
			v.drained()
			close(states)
			got.States = map[http.ConnState]bool{}
			for state := range states {
				got.States[state] = true
			}
			want := seen{Server: true, LocalAddr: true, TLS: srv.TLSConfig != nil, Options: http.StatusOK,
				States: map[http.ConnState]bool{http.StateNew: true, http.StateActive: true, http.StateIdle: true, http.StateClosed: true}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
