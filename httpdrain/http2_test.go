package httpdrain_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/httpdrain"
)

// certificate returns the certificate of package httptest, which is valid for example.com.
var certificate = sync.OnceValue(func() tls.Certificate {
	ts := httptest.NewTLSServer(nil)
	defer ts.Close()
	return ts.TLS.Certificates[0]
})

// secured returns a server with a certificate, for HTTP/1 and HTTP/2.
func secured(h http.HandlerFunc) *http.Server {
	return &http.Server{Handler: h, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate()}}}
}

// plain2 returns a server for HTTP/1 and HTTP/2 without TLS.
func plain2(h http.HandlerFunc) *http.Server {
	srv := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	return srv
}

// An agent is a net/http client that uses one connection at a time.
type agent struct {
	*http.Client
	t     *testing.T
	url   string
	conns atomic.Int32 // number of connections dialled
}

func newAgent(t *testing.T, v *service, srv *http.Server, protocol string) *agent {
	a := &agent{t: t, url: "http://" + v.addr}
	tr := &http.Transport{
		Protocols:       new(http.Protocols),
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		MaxConnsPerHost: 1,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			a.conns.Add(1)
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	}
	switch {
	case protocol == "HTTP/1.1":
		tr.Protocols.SetHTTP1(true)
	case srv.TLSConfig != nil:
		tr.Protocols.SetHTTP2(true)
	default:
		tr.Protocols.SetUnencryptedHTTP2(true)
	}
	if srv.TLSConfig != nil {
		a.url = "https://" + v.addr
	}
	a.Client = &http.Client{Transport: tr}
	t.Cleanup(a.CloseIdleConnections)
	return a
}

// get sends a GET request and returns the body of the response.
func (a *agent) get(path, wantProtocol string) string {
	a.t.Helper()
	resp, err := a.Get(a.url + path)
	if err != nil {
		a.t.Fatalf("a request was lost: %v", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.Proto != wantProtocol {
		a.t.Fatalf("a request was lost: protocol %s, error %v, body %s", resp.Proto, err, b)
	}
	return string(b)
}

var protocols = []struct {
	name  string
	make  func(http.HandlerFunc) *http.Server
	proto string
}{
	{"HTTP/1", func(h http.HandlerFunc) *http.Server { return handler(h) }, "HTTP/1.1"},
	{"HTTP/1 over TLS", secured, "HTTP/1.1"},
	{"HTTP/2 over TLS", secured, "HTTP/2.0"},
	{"h2c", plain2, "HTTP/2.0"},
}

func TestServe_DrainsEachProtocol(t *testing.T) {
	for _, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			entered, leave := make(chan struct{}), make(chan struct{})
			srv := p.make(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/slow" {
					close(entered)
					scope, _ := ctxshutdown.FromContext(r.Context())
					<-scope.Done()
					<-leave
				}
				io.WriteString(w, "ok")
			})
			v := start(t, srv)
			idle, slow, unused := newAgent(t, v, srv, p.proto), newAgent(t, v, srv, p.proto), dial(t, v.addr)
			if b := idle.get("/", p.proto); b != "ok" {
				t.Errorf("read %q", b)
			}
			answer := make(chan string)
			go func() { answer <- slow.get("/slow", p.proto) }()
			<-entered
			v.s.Shutdown()
			unused.closed()
			close(leave)
			if b := <-answer; b != "ok" {
				t.Errorf("read %q", b)
			}
			v.drained()
			if _, err := idle.Get(idle.url); err == nil {
				t.Error("the server still answers")
			}
		})
	}
}

// On HTTP/2, a request that arrives after the stop is served, and the server sends a GOAWAY with
// its response. Other requests on the connection continue.
func TestServe_AnswersHTTP2RequestAfterStop(t *testing.T) {
	for _, p := range protocols[2:] {
		t.Run(p.name, func(t *testing.T) {
			entered, leave := make(chan struct{}), make(chan struct{})
			srv := p.make(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/slow" {
					close(entered)
					<-leave
				}
				io.WriteString(w, "ok")
			})
			v := start(t, srv, longLinger)
			a := newAgent(t, v, srv, p.proto)
			answer := make(chan string)
			go func() { answer <- a.get("/slow", p.proto) }()
			<-entered
			v.s.Shutdown()
			<-v.drains
			for a.conns.Load() == 1 { // repeat until the GOAWAY makes the client use another connection
				resp, err := a.Get(a.url)
				if err != nil {
					break
				}
				resp.Body.Close()
			}
			close(leave)
			if b := <-answer; b != "ok" {
				t.Errorf("read %q", b)
			}
			v.drained()
		})
	}
}

// An HTTP/2 connection without a request gets both GOAWAYs, even if the client does not confirm the
// first one, and is then closed.
func TestServe_SendsGoAwayToHTTP2ConnectionWithoutRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := listenInMemory()
		v := startOn(t, ln, plain2(ok))
		p := ln.dial(t)
		p.send(preface + frame(4, 0, ""))
		p.next(4)
		p.next(4)
		v.s.Shutdown()
		for _, want := range []uint32{1<<31 - 1, 0} {
			if got := lastStreamOf(p.next(7)); got != want {
				t.Errorf("a GOAWAY names stream %d, want %d", got, want)
			}
		}
		p.closed()
		v.drained()
	})
}

func frame(typ, flags byte, payload string) string { return frameOf(0, typ, flags, payload) }

func frameOf(stream, typ, flags byte, payload string) string {
	n := len(payload)
	return string([]byte{byte(n >> 16), byte(n >> 8), byte(n), typ, flags, 0, 0, 0, stream}) + payload
}

// preface is what a client sends first. noRoom is the payload of a SETTINGS frame with which the
// client leaves no room for response bodies.
const (
	preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	noRoom  = "\x00\x04\x00\x00\x00\x00"
)

// request2 returns the HTTP/2 frame of a GET request.
func request2(stream byte, path string) string {
	return frameOf(stream, 1, 4|1, "\x82\x86\x04"+string(byte(len(path)))+path) // the encoded method GET and scheme http
}

// room returns an HTTP/2 frame with which a client makes room for the body of a response.
func room(stream byte) string { return frameOf(stream, 8, 0, "\x3f\xff\xff\xff") }

// readUntil reads HTTP/2 frames up to the first frame of the type want.
func (p *peer) readUntil(want byte) {
	p.t.Helper()
	for {
		switch typ, err := p.frame(); {
		case err != nil:
			p.t.Fatalf("read %v, want a frame of type %d", err, want)
		case typ == want:
			return
		}
	}
}

// If a client has no room for a response, the drain waits for it until Force, and the CutError
// lists the request.
func TestServe_WaitsUntilForceForHTTP2ClientWithoutRoom(t *testing.T) {
	for _, cut := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ln := listenInMemory()
			v := startOn(t, ln, plain2(ok))
			p := ln.dial(t)
			p.send(preface + frame(4, 0, noRoom) + request2(1, "/"))
			p.readUntil(1) // wait for the header of the response
			synctest.Wait()
			v.s.Shutdown()
			time.Sleep(time.Minute)
			// Serve and the request each hold a guard.
			if got := v.s.GuardReport().String(); !strings.Contains(got, "http ×2") {
				t.Errorf("wrong guard report: %s", got)
			}
			if !cut {
				p.send(room(1))
				p.readUntil(0)
				go io.Copy(io.Discard, p.in)
				v.drained()
				return
			}
			go io.Copy(io.Discard, p.in)
			v.s.Force(errTooLate)
			err := <-v.done
			if want := "httpdrain: http: drain cut short (too late) with 1 request left: GET / from pipe for 1m0s"; err == nil || err.Error() != want {
				t.Errorf("Serve: %v\nwant %s", err, want)
			}
		})
	}
}

// On an HTTP/2 connection with an event stream of Debug and another request, the drain waits for
// the other request only.
func TestDebug_DrainWaitsForRequestOnHTTP2ConnectionWithEventStream(t *testing.T) {
	for _, test := range []struct {
		name string
		wrap func(http.ResponseWriter) http.ResponseWriter
	}{
		{"direct", func(w http.ResponseWriter) http.ResponseWriter { return w }},
		{"behind middleware", func(w http.ResponseWriter) http.ResponseWriter { return unwraps{w} }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ln := listenInMemory()
				leave := make(chan struct{})
				mux := http.NewServeMux()
				v := startOn(t, ln, plain2(func(w http.ResponseWriter, r *http.Request) { mux.ServeHTTP(test.wrap(w), r) }))
				mux.Handle("/events", httpdrain.Debug(v.s, httpdrain.AllowRemote("*")))
				mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) { <-leave; io.WriteString(w, "ok") })
				p := ln.dial(t)
				ended, resume := make(chan byte, 2), make(chan struct{})
				go p.endings(ended, resume)
				p.send(preface + frame(4, 0, noRoom) + room(0) + request2(1, "/slow"))
				synctest.Wait()
				p.send(request2(3, "/events") + room(3))
				synctest.Wait()
				v.s.Shutdown()
				time.Sleep(time.Second)
				close(leave) // the client has no room for the response
				time.Sleep(1010 * time.Millisecond)
				// Serve and each of the two requests hold a guard.
				if got := v.s.GuardReport().String(); len(v.done) > 0 || !strings.Contains(got, "http ×3") {
					t.Errorf("before the response is sent: Serve has returned: %v; report: %s", len(v.done) > 0, got)
				}
				p.SetReadDeadline(past)
				synctest.Wait()
				// Now the server may send the response, but the client does not read it.
				p.send(room(1))
				time.Sleep(time.Second)
				if len(v.done) > 0 {
					t.Error("Serve has returned before the client has read the response")
				}
				close(resume)
				if got := <-ended; got != 1 {
					t.Errorf("HTTP/2 stream %d ends first, want stream 1, the response", got)
				}
				select {
				case err := <-v.done:
					if err != nil {
						t.Errorf("Serve returned an unexpected result: %v", err)
					}
				case <-time.After(time.Minute):
					t.Errorf("Serve has not returned: %v", v.s.GuardReport())
				}
			})
		})
	}
}

// unwraps is a ResponseWriter of middleware, with an Unwrap method.
type unwraps struct{ http.ResponseWriter }

func (u unwraps) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// endings reads HTTP/2 frames. It sends the number of each HTTP/2 stream that ends to the channel
// ended, and 0 when the connection ends. When the read deadline passes, it pauses until the channel
// resume is closed.
func (p *peer) endings(ended chan<- byte, resume <-chan struct{}) {
	for {
		var h [9]byte
		_, err := io.ReadFull(p.in, h[:])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			<-resume
			p.SetReadDeadline(time.Time{})
			continue
		}
		if err != nil {
			ended <- 0
			return
		}
		io.CopyN(io.Discard, p.in, int64(h[0])<<16|int64(h[1])<<8|int64(h[2]))
		if h[3] == 0 && h[4]&1 != 0 {
			ended <- h[8]
		}
	}
}

// IdleTimeout of the user's server applies to its HTTP/2 connections.
func TestServe_AppliesIdleTimeoutOfUsersServerToHTTP2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := listenInMemory()
		srv := plain2(ok)
		srv.IdleTimeout = time.Minute
		v := startOn(t, ln, srv)
		p := ln.dial(t)
		p.send(preface + frame(4, 0, ""))
		began := time.Now()
		p.readUntil(7)
		if took := time.Since(began); took != time.Minute {
			t.Errorf("a GOAWAY after %v, want it after the IdleTimeout", took)
		}
		go io.Copy(io.Discard, p.in)
		v.s.Shutdown()
		v.drained()
	})
}

// frame reads an HTTP/2 frame and returns its type.
func (p *peer) frame() (typ byte, err error) {
	var h [9]byte
	if _, err := io.ReadFull(p.in, h[:]); err != nil {
		return 0, err
	}
	_, err = io.CopyN(io.Discard, p.in, int64(h[0])<<16|int64(h[1])<<8|int64(h[2]))
	return h[3], err
}

func TestServe_LosesNoHTTP2RequestUnderLoad(t *testing.T) {
	for _, p := range protocols[2:] {
		t.Run(p.name, func(t *testing.T) {
			for range 3 {
				var requests atomic.Int32
				busy := make(chan struct{})
				srv := p.make(func(w http.ResponseWriter, r *http.Request) {
					io.Copy(io.Discard, r.Body)
					if requests.Add(1) == 300 {
						close(busy)
					}
					io.WriteString(w, "ok")
				})
				v := start(t, srv, longLinger)
				var wg sync.WaitGroup
				for range 20 {
					a := newAgent(t, v, srv, p.proto)
					wg.Go(func() {
						for {
							resp, err := a.Post(a.url, "text/plain", nil)
							if isRefused(err) {
								return
							}
							if err != nil {
								t.Errorf("a request was lost: %v", err)
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
			}
		})
	}
}

// Serve does not enable HTTP/2 if the user has disabled it.
func TestServe_DoesNotEnableHTTP2ThatUserHasDisabled(t *testing.T) {
	for name, off := range map[string]func(*http.Server){
		"by TLSNextProto": func(srv *http.Server) { srv.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){} },
		"by Protocols":    func(srv *http.Server) { srv.Protocols = new(http.Protocols); srv.Protocols.SetHTTP1(true) },
	} {
		t.Run(name, func(t *testing.T) {
			srv := secured(ok)
			off(srv)
			v := start(t, srv)
			conn, err := tls.Dial("tcp", v.addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if got := conn.ConnectionState().NegotiatedProtocol; got != "http/1.1" {
				t.Errorf("TLS negotiated the protocol %q", got)
			}
			v.s.Shutdown()
			v.drained()
		})
	}
}
