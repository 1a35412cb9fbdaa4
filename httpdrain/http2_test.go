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

// certificate is the one of httptest, for example.com.
var certificate = sync.OnceValue(func() tls.Certificate {
	ts := httptest.NewTLSServer(nil)
	defer ts.Close()
	return ts.TLS.Certificates[0]
})

// secured returns a server for TLS, with HTTP/1 and HTTP/2.
func secured(h http.HandlerFunc) *http.Server {
	return &http.Server{Handler: h, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate()}}}
}

// plain2 returns a server that speaks HTTP/1 and HTTP/2 without TLS.
func plain2(h http.HandlerFunc) *http.Server {
	srv := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	return srv
}

// An agent is a net/http client with one connection at a time.
type agent struct {
	*http.Client
	t     *testing.T
	url   string
	conns atomic.Int32 // dialled
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

// gets returns the body of the response.
func (a *agent) gets(path, wantProtocol string) string {
	a.t.Helper()
	resp, err := a.Get(a.url + path)
	if err != nil {
		a.t.Fatalf("lost: %v", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.Proto != wantProtocol {
		a.t.Fatalf("lost: %s, %v, %s", resp.Proto, err, b)
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

func TestServe_EachProtocol(t *testing.T) {
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
			if b := idle.gets("/", p.proto); b != "ok" {
				t.Errorf("read %q", b)
			}
			answer := make(chan string)
			go func() { answer <- slow.gets("/slow", p.proto) }()
			<-entered
			v.s.Shutdown()
			unused.closed()
			close(leave)
			if b := <-answer; b != "ok" {
				t.Errorf("read %q", b)
			}
			v.drained()
			if _, err := idle.Get(idle.url); err == nil {
				t.Error("the server is still there")
			}
		})
	}
}

// On HTTP/2, a request after the stop is served, and its response goes with a GOAWAY. What runs beside it is not touched.
func TestServe_HTTP2RequestsAfterTheStop(t *testing.T) {
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
			v := start(t, srv, patient)
			a := newAgent(t, v, srv, p.proto)
			answer := make(chan string)
			go func() { answer <- a.gets("/slow", p.proto) }()
			<-entered
			v.s.Shutdown()
			<-v.drains
			for a.conns.Load() == 1 { // until the GOAWAY has the client try another connection
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

// An HTTP/2 connection that has been quiet for the linger gets a GOAWAY, and is closed if the client does not do so.
func TestServe_HTTP2Goodbye(t *testing.T) {
	srv := plain2(ok)
	v := start(t, srv)
	p := dial(t, v.addr)
	p.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, ""))
	for typ := byte(0); typ != 4; typ, _ = p.frame() { // the server's settings
	}
	v.s.Shutdown()
	said := false
	for {
		typ, err := p.frame()
		if err != nil {
			break
		}
		said = said || typ == 7
	}
	if !said {
		t.Error("closed without a GOAWAY")
	}
	v.drained()
}

func frame(typ, flags byte, payload string) string { return frameOf(0, typ, flags, payload) }

func frameOf(stream, typ, flags byte, payload string) string {
	n := len(payload)
	return string([]byte{byte(n >> 16), byte(n >> 8), byte(n), typ, flags, 0, 0, 0, stream}) + payload
}

// What a client says: a setting by which there is no room for any body, a request, and that there is room for its body.
const (
	preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	noRoom  = "\x00\x04\x00\x00\x00\x00"
)

func request2(stream byte, path string) string {
	return frameOf(stream, 1, 4|1, "\x82\x86\x04"+string(byte(len(path)))+path) // GET, http
}

func room(stream byte) string { return frameOf(stream, 8, 0, "\x3f\xff\xff\xff") }

// until reads frames until there is one of that type.
func (p *peer) until(want byte) {
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

// A client that has no room for a response is waited for, as long as there is time, and named when that is over.
func TestServe_HTTP2WithoutRoom(t *testing.T) {
	for _, cut := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ln := listenInMemory()
			v := startOn(t, ln, plain2(ok))
			p := ln.dial(t)
			p.send(preface + frame(4, 0, noRoom) + request2(1, "/"))
			p.until(1) // its header
			synctest.Wait()
			v.s.Shutdown()
			time.Sleep(time.Minute)
			if got := v.s.GuardReport().String(); !strings.Contains(got, "http ×2") { // Serve's and the request's
				t.Errorf("report: %s", got)
			}
			if !cut {
				p.send(room(1))
				p.until(0)
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

// A stream of Debug is told from the requests beside it on its connection: these are waited for until they are answered, and
// it is not.
func TestDebug_BesideOthersOnHTTP2(t *testing.T) {
	for _, test := range []struct {
		name string
		wrap func(http.ResponseWriter) http.ResponseWriter
	}{
		{"by itself", func(w http.ResponseWriter) http.ResponseWriter { return w }},
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
				close(leave) // there is no room for what it has written
				time.Sleep(1010 * time.Millisecond)
				if got := v.s.GuardReport().String(); len(v.done) > 0 || !strings.Contains(got, "http ×3") { // Serve's, and each of the two
					t.Errorf("with a response under way, Serve has returned: %v; report: %s", len(v.done) > 0, got)
				}
				p.SetReadDeadline(past)
				synctest.Wait()
				p.send(room(1)) // but the client does not read
				time.Sleep(time.Second)
				if len(v.done) > 0 {
					t.Error("with a response that is not read, Serve has returned")
				}
				close(resume)
				if got := <-ended; got != 1 {
					t.Errorf("the end of stream %d comes first, want that of the response", got)
				}
				select {
				case err := <-v.done:
					if err != nil {
						t.Errorf("Serve: %v", err)
					}
				case <-time.After(time.Minute):
					t.Errorf("Serve has not returned: %v", v.s.GuardReport())
				}
			})
		})
	}
}

// unwraps is a middleware's ResponseWriter.
type unwraps struct{ http.ResponseWriter }

func (u unwraps) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// endings reads frames, and sends the streams that are ended in these, and 0 for the end of the connection. When the read
// deadline passes, it reads nothing until it is to resume.
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

// A quiet HTTP/2 connection is closed after the IdleTimeout of the user's server.
func TestServe_HTTP2IdleTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := listenInMemory()
		srv := plain2(ok)
		srv.IdleTimeout = time.Minute
		v := startOn(t, ln, srv)
		p := ln.dial(t)
		p.send(preface + frame(4, 0, ""))
		began := time.Now()
		p.until(7)
		if took := time.Since(began); took != time.Minute {
			t.Errorf("a GOAWAY after %v, want the IdleTimeout", took)
		}
		go io.Copy(io.Discard, p.in)
		v.s.Shutdown()
		v.drained()
	})
}

// frame reads one, and returns its type.
func (p *peer) frame() (typ byte, err error) {
	var h [9]byte
	if _, err := io.ReadFull(p.in, h[:]); err != nil {
		return 0, err
	}
	_, err = io.CopyN(io.Discard, p.in, int64(h[0])<<16|int64(h[1])<<8|int64(h[2]))
	return h[3], err
}

func TestServe_HTTP2UnderLoad(t *testing.T) {
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
				v := start(t, srv, patient)
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
								t.Errorf("lost: %v", err)
								return
							}
							if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "ok" {
								t.Errorf("lost: %q, %v", b, err)
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

// HTTP/2 that is switched off stays so.
func TestServe_HTTP2SwitchedOff(t *testing.T) {
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
				t.Errorf("negotiated %q", got)
			}
			v.s.Shutdown()
			v.drained()
		})
	}
}
