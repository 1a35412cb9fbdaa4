package httpdrain_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/internal/testkit"
)

// hijacker returns a server whose handler hijacks each connection and sends it to hijacked.
func hijacker(t *testing.T) (srv *http.Server, hijacked chan net.Conn) {
	hijacked = make(chan net.Conn, 1)
	return handler(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
		}
		hijacked <- conn
	}), hijacked
}

// Hijack returns a connection of the same type as with net/http alone, and the drain waits until
// this connection is closed.
func TestHijack_ReturnsConnectionOfListener(t *testing.T) {
	config := &tls.Config{Certificates: []tls.Certificate{certificate()}}
	for _, test := range []struct {
		name, network string
		config        *tls.Config // configuration of a TLS listener; nil for a listener without TLS
		secure        bool        // whether the server is started by ServeTLS
		want          string
	}{
		{"TCP", "tcp", nil, false, "*net.TCPConn"},
		{"unix socket", "unix", nil, false, "*net.UnixConn"},
		{"TLS listener", "tcp", config, false, "*tls.Conn"},
		{"ServeTLS", "tcp", nil, true, "*tls.Conn"},
	} {
		t.Run(test.name, func(t *testing.T) {
			addr := "127.0.0.1:0"
			if test.network == "unix" {
				addr = filepath.Join(t.TempDir(), "socket")
			}
			ln, err := net.Listen(test.network, addr)
			if err != nil {
				t.Fatal(err)
			}
			addr = ln.Addr().String()
			srv, hijacked := hijacker(t)
			if test.config != nil {
				ln = tls.NewListener(ln, test.config)
			}
			if test.secure {
				srv.TLSConfig = config
			}
			v := startOn(t, ln, srv)
			conn, err := net.Dial(test.network, addr)
			if err != nil {
				t.Fatal(err)
			}
			if test.want == "*tls.Conn" {
				conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
			}
			p := newPeer(t, conn)
			p.send(get)
			conn = <-hijacked
			if got := fmt.Sprintf("%T", conn); got != test.want {
				t.Errorf("Hijack returned a %s, want a %s", got, test.want)
			}
			v.s.Shutdown()
			<-v.drains
			go io.Copy(conn, conn)
			p.send("still here")
			b := make([]byte, len("still here"))
			if _, err := io.ReadFull(p.in, b); err != nil || string(b) != "still here" {
				t.Errorf("the client read %q and the error %v", b, err)
			}
			if len(v.done) > 0 {
				t.Fatalf("Serve has returned: %v", <-v.done)
			}
			conn.Close()
			v.drained()
		})
	}
}

// The guard of a hijacked connection is released when the connection is closed, even before the
// stop.
func TestHijack_CloseOfConnectionReleasesItsGuardAtOnce(t *testing.T) {
	srv, hijacked := hijacker(t)
	v := start(t, srv)
	p := dial(t, v.addr)
	p.send(get)
	conn := <-hijacked
	held := func() bool { return strings.Contains(v.s.GuardReport().String(), "http/hijacked ×1") }
	if !held() {
		t.Errorf("the hijacked connection is not in the report: %v", v.s.GuardReport())
	}
	conn.Close()
	for held() {
		time.Sleep(10 * time.Millisecond)
	}
}

// A CutError does not list a hijacked connection that was closed just before Force.
func TestHijack_ClosedConnectionIsNotListedInCutError(t *testing.T) {
	srv, hijacked := hijacker(t)
	hijack, contexts := srv.Handler, make(chan context.Context, 2)
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		contexts <- r.Context()
		hijack.ServeHTTP(w, r)
	})
	v := start(t, srv)
	closed, open := dial(t, v.addr), dial(t, v.addr)
	closed.send("GET /closed HTTP/1.1\r\nHost: test\r\n\r\n")
	conn := <-hijacked
	// Wait until the handler, and the handler of httpdrain that calls it, have returned: then
	// net/http cancels the context of the request.
	<-(<-contexts).Done()
	open.send("GET /open HTTP/1.1\r\nHost: test\r\n\r\n")
	defer (<-hijacked).Close()
	v.s.Shutdown()
	<-v.drains
	time.Sleep(200 * time.Millisecond) // by the end of this pause, the drain checks the sockets every few milliseconds
	conn.Close()
	v.s.Force(nil)
	err := <-v.done
	var cut *httpdrain.CutError
	if !errors.As(err, &cut) || !errors.Is(err, ctxshutdown.ErrForced) {
		t.Fatalf("Serve: %v", err)
	}
	var routes []string
	for _, c := range cut.Cut {
		routes = append(routes, c.Route)
	}
	testkit.Equal(t, "cut", routes, []string{"/open"})
}

// If a handler that still runs after Force hijacks its connection, Hijack returns a closed
// connection.
func TestHijack_ReturnsClosedConnectionAfterForce(t *testing.T) {
	entered, leave, left := make(chan struct{}), make(chan struct{}), make(chan struct{})
	v := start(t, handler(func(w http.ResponseWriter, r *http.Request) {
		defer close(left)
		close(entered)
		<-leave
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		if _, err := conn.Write([]byte("hello")); err == nil {
			t.Error("the connection is open")
		}
		conn.Close()
	}))
	p := dial(t, v.addr)
	p.send(get)
	<-entered
	v.s.Force(nil)
	if err := <-v.done; !errors.Is(err, ctxshutdown.ErrForced) {
		t.Errorf("Serve: %v", err)
	}
	close(leave)
	<-left
}
