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
	if addr := os.Getenv("SWANSONG_TEST_RUN"); addr != "" {
		os.Exit(runOnAddress(addr))
	}
	os.Unsetenv("CTXSHUTDOWN_TRACE")
	log.SetOutput(io.Discard) // do not print the failed TLS handshakes, which net/http logs
	goleak.VerifyTestMain(m)
}

// If the environment variable SWANSONG_TEST_RUN is set, TestMain calls runOnAddress with its value
// instead of running the tests.
var runOnAddress func(addr string) int

// longLinger is for tests in which the server must not close a quiet connection, even on a slow
// machine.
var longLinger = httpdrain.WithLinger(time.Minute, time.Minute)

// A service is a running call of Serve.
type service struct {
	t      *testing.T
	s      *ctxshutdown.Swansong
	addr   string
	drains chan struct{} // closed when the drain has begun
	done   chan error    // receives the result of Serve
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
	opts = append([]httpdrain.Option{httpdrain.WithLogger(slog.New(drainObserver{slog.DiscardHandler, v.drains}))}, opts...)
	running := v.s.Guard() // this guard keeps the scope from being complete before Serve has begun
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
	for v.s.GuardCount() < 2 && len(v.done) == 0 { // Serve acquires a guard when it begins
		runtime.Gosched()
	}
	return v
}

// A drainObserver is a log handler that closes a channel when a drain begins.
type drainObserver struct {
	slog.Handler
	drains chan struct{}
}

func (drainObserver) Enabled(context.Context, slog.Level) bool { return true }

func (o drainObserver) WithAttrs([]slog.Attr) slog.Handler { return o }

func (o drainObserver) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "httpdrain: draining" {
		close(o.drains)
	}
	return nil
}

// drained waits for Serve to return, and fails the test if the result is not nil.
func (v *service) drained() {
	v.t.Helper()
	if err := <-v.done; err != nil {
		v.t.Errorf("Serve returned an unexpected result: %v", err)
	}
}

func handler(h http.HandlerFunc) *http.Server { return &http.Server{Handler: h} }

func ok(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }

const get = "GET / HTTP/1.1\r\nHost: test\r\n\r\n"

// A peer is the client's end of a connection.
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

// readResponse reads a complete response, checks its status and body, and returns it.
func (p *peer) readResponse(status int, body string) *http.Response {
	p.t.Helper()
	r, err := http.ReadResponse(p.in, nil)
	if err != nil {
		p.t.Fatalf("a request was lost: %v", err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != status || strings.TrimSpace(string(b)) != body {
		p.t.Fatalf("lost: status %d, body %q, error %v; want %d, %q", r.StatusCode, b, err, status, body)
	}
	return r
}

// answered reads the response "ok", and reports whether the connection may be used again.
func (p *peer) answered() (keep bool) {
	p.t.Helper()
	return !p.readResponse(http.StatusOK, "ok").Close
}

// closed waits until the server has closed the connection. It fails the test if the server sends
// anything before that.
func (p *peer) closed() {
	p.t.Helper()
	if b, err := p.in.ReadByte(); err != io.EOF {
		p.t.Fatalf("read %q, %v; want io.EOF", b, err)
	}
}
