package httpdrain_test

import (
	"bufio"
	"context"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/httpdrain"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(exitVar) != "" {
		serveAndExit()
		return
	}
	os.Unsetenv("CTXSHUTDOWN_TRACE")
	log.SetOutput(io.Discard) // net/http tells of each handshake that does not come to its end
	goleak.VerifyTestMain(m)
}

// patient is for tests in which no connection is to be closed for being quiet, however slow the machine.
var patient = httpdrain.WithLinger(time.Minute)

// A service is a Serve under the test's control.
type service struct {
	t      *testing.T
	s      *ctxshutdown.Swansong
	addr   string
	drains chan struct{} // closed when the listener is, and every response is its connection's last
	done   chan error    // what Serve returned
}

// start serves srv on a port of the loopback interface, over TLS if srv has a certificate.
func start(t *testing.T, srv *http.Server, opts ...httpdrain.Option) *service {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return startOn(t, ln, srv, opts...)
}

func startOn(t *testing.T, ln net.Listener, srv *http.Server, opts ...httpdrain.Option) *service {
	v := &service{t: t, s: ctxshutdown.New(context.Background()), addr: ln.Addr().String(), drains: make(chan struct{}), done: make(chan error, 1)}
	opts = append([]httpdrain.Option{httpdrain.WithLogger(slog.New(listening{slog.DiscardHandler, v.drains}))}, opts...)
	running := v.s.Guard() // so that the scope is not complete before Serve has begun
	go func() {
		defer running.Release()
		if srv.TLSConfig != nil && srv.TLSConfig.Certificates != nil {
			v.done <- httpdrain.ServeTLS(v.s, srv, ln, "", "", opts...)
		} else {
			v.done <- httpdrain.Serve(v.s, srv, ln, opts...)
		}
	}()
	t.Cleanup(func() {
		v.s.Force(nil)
		if err := v.s.Shutdown().Wait(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for v.s.GuardCount() < 2 && len(v.done) == 0 { // Serve has its own once it has begun
		runtime.Gosched()
	}
	return v
}

// A listening closes a channel when it hears that a server drains.
type listening struct {
	slog.Handler
	drains chan struct{}
}

func (listening) Enabled(context.Context, slog.Level) bool { return true }

func (l listening) WithAttrs([]slog.Attr) slog.Handler { return l }

func (l listening) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "httpdrain: draining" {
		close(l.drains)
	}
	return nil
}

// drained waits for Serve to return nil.
func (v *service) drained() {
	v.t.Helper()
	if err := <-v.done; err != nil {
		v.t.Errorf("Serve: %v", err)
	}
}

func handler(h http.HandlerFunc) *http.Server { return &http.Server{Handler: h} }

func ok(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }

const get = "GET / HTTP/1.1\r\nHost: test\r\n\r\n"

// A peer is a connection under the test's control.
type peer struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

func dial(t *testing.T, addr string) *peer {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return newPeer(t, conn)
}

func newPeer(t *testing.T, conn net.Conn) *peer {
	t.Cleanup(func() { conn.Close() })
	return &peer{t, conn, bufio.NewReader(conn)}
}

func (p *peer) send(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p, text); err != nil {
		p.t.Fatal(err)
	}
}

// receives reads a complete response with this status and body, and returns it.
func (p *peer) receives(status int, body string) *http.Response {
	p.t.Helper()
	r, err := http.ReadResponse(p.in, nil)
	if err != nil {
		p.t.Fatalf("lost: %v", err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != status || strings.TrimSpace(string(b)) != body {
		p.t.Fatalf("lost: status %d, body %q, error %v; want %d, %q", r.StatusCode, b, err, status, body)
	}
	return r
}

// answered reads "ok", and returns whether the connection may be used again.
func (p *peer) answered() (keep bool) {
	p.t.Helper()
	return !p.receives(http.StatusOK, "ok").Close
}

// closed waits until the server has closed the connection, with nothing more on it.
func (p *peer) closed() {
	p.t.Helper()
	if b, err := p.in.ReadByte(); err != io.EOF {
		p.t.Fatalf("read %q, %v; want the end", b, err)
	}
}
