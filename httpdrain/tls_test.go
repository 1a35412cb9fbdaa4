package httpdrain_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// listenTLS returns a TLS listener on a port of the loopback interface, and a server for it.
func listenTLS(t *testing.T, h http.HandlerFunc, protocols ...string) (net.Listener, *http.Server) {
	t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate()}, NextProtos: protocols})
	if err != nil {
		t.Fatal(err)
	}
	return ln, handler(h)
}

// Serve serves a TLS listener, such as that of autocert or tsnet, as net/http does.
func TestServe_ServesTLSListenerAsNetHTTPDoes(t *testing.T) {
	type seen struct {
		Proto, Conn   string
		HandshakeDone bool
	}
	for name, only := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": false, "HTTP/2.0 only": true} {
		t.Run(name, func(t *testing.T) {
			proto := strings.TrimSuffix(name, " only")
			var got seen
			entered, leave := make(chan struct{}), make(chan struct{})
			ln, srv := listenTLS(t, func(w http.ResponseWriter, r *http.Request) {
				got.Proto, got.HandshakeDone = r.Proto, r.TLS != nil && r.TLS.HandshakeComplete
				if r.URL.Path == "/slow" {
					close(entered)
					<-leave
				}
				io.WriteString(w, "ok")
			}, "h2", "http/1.1")
			if only {
				srv.Protocols = new(http.Protocols)
				srv.Protocols.SetHTTP2(true)
			}
			var mu sync.Mutex
			srv.ConnContext = func(ctx context.Context, nc net.Conn) context.Context {
				if _, ok := nc.(*tls.Conn); ok {
					mu.Lock()
					defer mu.Unlock()
					got.Conn = "*tls.Conn"
				}
				return ctx
			}
			v := startOn(t, ln, srv)
			secure := &http.Server{TLSConfig: &tls.Config{}} // with a TLSConfig, newAgent uses TLS
			idle, slow, unused := newAgent(t, v, secure, proto), newAgent(t, v, secure, proto), dial(t, v.addr)
			if b := idle.get("/", proto); b != "ok" {
				t.Errorf("read %q", b)
			}
			answer := make(chan string)
			go func() { answer <- slow.get("/slow", proto) }()
			<-entered
			v.s.Shutdown()
			unused.closed()
			close(leave)
			if b := <-answer; b != "ok" {
				t.Errorf("read %q", b)
			}
			v.drained()
			if diff := cmp.Diff(seen{proto, "*tls.Conn", true}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A client that does not speak TLS gets an HTTP response that tells it to use TLS, and the server
// goes on.
func TestServe_TLSListenerAnswersPlaintextClient(t *testing.T) {
	var logged bytes.Buffer
	ln, srv := listenTLS(t, ok)
	srv.ErrorLog = log.New(&logged, "", 0)
	v := startOn(t, ln, srv)
	p := dial(t, v.addr)
	p.send(get)
	if b, _ := io.ReadAll(p.in); !strings.Contains(string(b), "400 Bad Request") {
		t.Errorf("read %q, want 400 Bad Request", b)
	}
	a := newAgent(t, v, &http.Server{TLSConfig: &tls.Config{}}, "HTTP/1.1")
	a.get("/", "HTTP/1.1")
	v.s.Shutdown()
	v.drained()
	if got, want := logged.String(), "http: TLS handshake error from "; !strings.HasPrefix(got, want) || strings.Count(got, "\n") != 1 {
		t.Errorf("logged %q, want one line that begins with %q", got, want)
	}
}

// A handshake that is under way at the stop is completed, and the request after it is served.
func TestServe_TLSListenerCompletesHandshakeAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := listenInMemory()
		v := startOn(t, tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{certificate()}}), handler(ok))
		p := ln.dial(t)
		slow := &slowConn{Conn: p.Conn}
		c := tls.Client(slow, &tls.Config{InsecureSkipVerify: true})
		done := make(chan error)
		go func() { done <- c.Handshake() }()
		synctest.Wait() // the client has sent its hello
		v.s.Shutdown()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		slow.done = true
		newPeer(t, c).send(get)
		if b, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(b), "ok") {
			t.Errorf("read %q, %v", b, err)
		}
		v.drained()
	})
}

// If a handshake ends after the stop, the client then has the whole linger to send a request.
func TestServe_TLSListenerWaitsForRequestAfterLateHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := listenInMemory()
		v := startOn(t, tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{certificate()}}), handler(ok))
		p := ln.dial(t)
		c := tls.Client(&lateConn{Conn: p.Conn, delay: 1950 * time.Millisecond}, &tls.Config{InsecureSkipVerify: true})
		done := make(chan error)
		go func() { done <- c.Handshake() }()
		synctest.Wait() // the client has sent its hello
		v.s.Shutdown()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		time.Sleep(90 * time.Millisecond)
		newPeer(t, c).send(get)
		if b, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(b), "ok") {
			t.Errorf("read %q, %v", b, err)
		}
		v.drained()
	})
}

// A lateConn is a connection on which the second write, which ends a handshake, takes long.
type lateConn struct {
	net.Conn
	delay  time.Duration
	writes int
}

func (c *lateConn) Write(b []byte) (int, error) {
	if c.writes++; c.writes == 2 {
		time.Sleep(c.delay)
	}
	return c.Conn.Write(b)
}
