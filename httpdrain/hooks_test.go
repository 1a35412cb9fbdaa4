package httpdrain_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/internal/testkit"
)

type keyOf string

// The server calls the user's hooks with the connection that the listener accepted.
func TestServe_PassesAcceptedConnectionToHooks(t *testing.T) {
	for _, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			var mu sync.Mutex
			var states []http.ConnState
			hooked := map[string]bool{}
			called := func(hook string, nc net.Conn) {
				mu.Lock()
				defer mu.Unlock()
				if tc, ok := nc.(*tls.Conn); ok && strings.Contains(p.name, "TLS") {
					nc = tc
				} else if _, ok := nc.(*net.TCPConn); !ok {
					t.Errorf("%s is given %T", hook, nc)
				}
				hooked[hook] = true
			}
			user, cancel := context.WithCancel(context.WithValue(context.Background(), keyOf("base"), "of the base"))
			srv := p.make(func(w http.ResponseWriter, r *http.Request) {
				ctx := r.Context()
				cancel() // cancelling the context of BaseContext must not cancel the request
				s, ok := ctxshutdown.FromContext(ctx)
				fmt.Fprintln(w, ctx.Value(keyOf("base")), ctx.Value(keyOf("conn")), ctx.Value(http.ServerContextKey) != nil, ok, s.Err(), ctx.Err())
			})
			srv.ConnState = func(nc net.Conn, state http.ConnState) {
				called("ConnState", nc)
				mu.Lock()
				defer mu.Unlock()
				states = append(states, state)
			}
			srv.BaseContext = func(ln net.Listener) context.Context { hooked["BaseContext"] = ln.Addr() != nil; return user }
			srv.ConnContext = func(ctx context.Context, nc net.Conn) context.Context {
				called("ConnContext", nc)
				if s, ok := ctxshutdown.FromContext(ctx); !ok || s.Err() != nil {
					t.Error("ConnContext is given a context without the scope")
				}
				return context.WithValue(ctx, keyOf("conn"), "of the connection")
			}
			v := start(t, srv)
			if got, want := newAgent(t, v, srv, p.proto).get("/", p.proto), "of the base of the connection true true <nil> <nil>\n"; got != want {
				t.Errorf("response %q, want %q", got, want)
			}
			v.s.Shutdown()
			v.drained()
			if diff := cmp.Diff(map[string]bool{"ConnState": true, "BaseContext": true, "ConnContext": true}, hooked); diff != "" {
				t.Error(diff)
			}
			// Serve must not return before ConnState was called with StateClosed.
			if n := len(states); states[0] != http.StateNew || states[n-1] != http.StateClosed {
				t.Errorf("wrong states in the events: %v", states)
			}
		})
	}
}

// If the user's ConnContext returns a context without the scope, requests still hold guards.
func TestServe_RequestsHoldGuardsEvenIfConnContextDropsScope(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	srv := handler(func(w http.ResponseWriter, r *http.Request) { close(entered); <-leave; ok(w, r) })
	srv.ConnContext = func(context.Context, net.Conn) context.Context { return context.Background() }
	v := start(t, srv, longLinger)
	p := dial(t, v.addr)
	p.send(get)
	<-entered
	v.s.Shutdown()
	if !strings.Contains(v.s.GuardReport().String(), "http ×2") {
		t.Errorf("report: %v", v.s.GuardReport())
	}
	<-v.drains
	close(leave)
	if p.answered() {
		t.Error("the response does not say Connection: close")
	}
	v.drained()
}

// The ResponseWriter implements the same interfaces as with net/http alone.
func TestServe_ResponseWriterKeepsInterfaces(t *testing.T) {
	interfaces := func(w http.ResponseWriter) string {
		_, flusher := w.(http.Flusher)
		_, errFlusher := w.(interface{ FlushError() error })
		_, hijacker := w.(http.Hijacker)
		_, pusher := w.(http.Pusher)
		_, readerFrom := w.(io.ReaderFrom)
		_, stringWriter := w.(io.StringWriter)
		_, closeNotifier := w.(interface{ CloseNotify() <-chan bool })
		c := http.NewResponseController(w)
		return fmt.Sprint(flusher, errFlusher, hijacker, pusher, readerFrom, stringWriter, closeNotifier,
			errors.Is(c.SetReadDeadline(time.Time{}), http.ErrNotSupported),
			errors.Is(c.SetWriteDeadline(time.Time{}), http.ErrNotSupported),
			errors.Is(c.EnableFullDuplex(), http.ErrNotSupported),
			errors.Is(c.Flush(), http.ErrNotSupported))
	}
	for _, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			h := func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, interfaces(w)) }
			drained, plain := p.make(h), p.make(h)
			v := start(t, drained)
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			served, secure := make(chan struct{}), plain.TLSConfig != nil
			a, b := newAgent(t, v, drained, p.proto), newAgent(t, &service{t: t, addr: ln.Addr().String()}, plain, p.proto)
			go func() {
				defer close(served)
				if secure {
					plain.ServeTLS(ln, "", "")
				} else {
					plain.Serve(ln)
				}
			}()
			got, want := a.get("/", p.proto), b.get("/", p.proto)
			plain.Close()
			<-served
			if got != want {
				t.Errorf("with Serve %s, without %s", got, want)
			}
		})
	}
}

// The final response says Connection: close, and an informational response does not.
func TestServe_SetsConnectionCloseInFinalResponseOnly(t *testing.T) {
	hinted, leave := make(chan struct{}), make(chan struct{})
	v := start(t, handler(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		close(hinted)
		<-leave
		w.WriteHeader(http.StatusEarlyHints)
		ok(w, r)
	}), longLinger)
	p := dial(t, v.addr)
	p.send(get)
	<-hinted
	v.s.Shutdown()
	<-v.drains
	close(leave)
	for range 2 {
		if r, err := http.ReadResponse(p.in, nil); err != nil || r.StatusCode != 103 || r.Close {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if p.answered() {
		t.Error("the response does not say Connection: close")
	}
	v.drained()
}

func TestServe_RejectsInvalidOptions(t *testing.T) {
	for want, opt := range map[string]httpdrain.Option{
		"httpdrain: WithLinger(-1s, -1s): must be from 0 to 1m0s, and the first not above the second":                                           httpdrain.WithLinger(-time.Second, -time.Second),
		"httpdrain: WithLinger(2562047h47m16.854775807s, 2562047h47m16.854775807s): must be from 0 to 1m0s, and the first not above the second": httpdrain.WithLinger(1<<63-1, 1<<63-1),
		"httpdrain: WithRetryAfter(0s): must be from 1s to 24h0m0s":                                                                             httpdrain.WithRetryAfter(0),
		"httpdrain: WithRetryAfter(24h0m1s): must be from 1s to 24h0m0s":                                                                        httpdrain.WithRetryAfter(24*time.Hour + time.Second),
		"httpdrain: WithPacing(0): must be from 0.01 to 1e6 connections a second":                                                               httpdrain.WithPacing(0),
		"httpdrain: WithPacing(NaN): must be from 0.01 to 1e6 connections a second":                                                             httpdrain.WithPacing(nan()),
		"httpdrain: WithPacing(+Inf): must be from 0.01 to 1e6 connections a second":                                                            httpdrain.WithPacing(1 / zero()),
	} {
		s := ctxshutdown.New(context.Background())
		ln := listenInMemory()
		if err := httpdrain.Serve(s, handler(ok), ln, nil, opt); err == nil || err.Error() != want {
			t.Errorf("Serve: %v, want %s", err, want)
		}
		<-ln.Closed
		if err := httpdrain.ListenAndServe(s, handler(ok), opt); err == nil || err.Error() != want {
			t.Errorf("ListenAndServe: %v, want %s", err, want)
		}
		s.Shutdown()
	}
}

func nan() float64  { return zero() / zero() }
func zero() float64 { return float64(len("")) }

func TestServe_RejectsInvalidArguments(t *testing.T) {
	s := ctxshutdown.New(context.Background())
	defer s.Shutdown()
	stopped := ctxshutdown.New(context.Background(), ctxshutdown.WithName("web"))
	stopped.ShutdownCause(errTooLate)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	drained := handler(ok)
	once := start(t, drained)
	once.s.Shutdown()
	once.drained()
	served := &http.Server{Handler: http.HandlerFunc(ok)}
	v := start(t, served)
	same := listenInMemory()
	v2 := startOn(t, same, served)
	for _, test := range []struct {
		name string
		err  error
		want string
		is   error
	}{
		{"nil scope", httpdrain.Serve(nil, handler(ok), listenInMemory()), "httpdrain: Serve: nil scope; create one with ctxshutdown.New", nil},
		{"nil server", httpdrain.Serve(s, nil, listenInMemory()), "httpdrain: Serve: nil *http.Server; pass one that has a Handler", nil},
		{"nil listener", httpdrain.Serve(s, handler(ok), nil), "httpdrain: Serve: nil net.Listener; open one with net.Listen, or call ListenAndServe", nil},
		{"nil server, by address", httpdrain.ListenAndServe(s, nil), "httpdrain: Serve: nil *http.Server; pass one that has a Handler", nil},
		{"a stopped scope", httpdrain.Serve(stopped, handler(ok), listenInMemory()),
			`httpdrain: Serve: the scope Swansong(web) has already been stopped: too late`, errTooLate},
		{"a port in use", httpdrain.ListenAndServe(s, &http.Server{Addr: taken.Addr().String()}),
			fmt.Sprintf("listen tcp %s: bind: %s", taken.Addr(), inUse), nil},
		{"an invalid port", httpdrain.ListenAndServeTLS(s, &http.Server{Addr: "127.0.0.1:99999"}, "", ""),
			"listen tcp: address 99999: invalid port", nil},
		{"a server that has drained", httpdrain.Serve(s, drained, listenInMemory()),
			"http: Server closed", http.ErrServerClosed},
		{"a listener that is being served", httpdrain.Serve(s, served, same),
			"httpdrain: Serve: the listener on memory is already served by another call for this http.Server; call Serve once for each listener", nil},
		{"no certificate", httpdrain.ServeTLS(s, handler(ok), listenInMemory(), "no.crt", "no.key"),
			"open no.crt: " + noFile, os.ErrNotExist},
	} {
		if test.err == nil || test.err.Error() != test.want || test.is != nil && !errors.Is(test.err, test.is) {
			t.Errorf("%s: %v, want %s", test.name, test.err, test.want)
		}
	}
	p := same.dial(t) // the second Serve, which has failed, must not have closed the listener
	p.send(get)
	p.answered()
	v.s.Shutdown()
	v2.s.Shutdown()
	v.drained()
	v2.drained()
}

// A program that is stopped before it calls Serve exits with code 0, even if it wraps the error of
// Serve. If it returns another error as well, it exits with code 1.
func TestServe_StopBeforeServeLeadsToExitCodeZero(t *testing.T) {
	errOther := errors.New("and the database is gone")
	for _, test := range []struct {
		name string
		wrap func(err error) error
		code int
	}{
		{"unwrapped", func(err error) error { return err }, 0},
		{"wrapped", func(err error) error { return fmt.Errorf("web: %w", err) }, 0},
		{"joined with nil", func(err error) error { return errors.Join(err, nil) }, 0},
		{"with an invalid option", nil, 1},
		{"joined with another error", func(err error) error { return errors.Join(err, errOther) }, 1},
		{"wrapped with another error", func(err error) error { return fmt.Errorf("%w, %w", err, errOther) }, 1},
		{"only its cause, wrapped", func(err error) error { return fmt.Errorf("web: %w", errTooLate) }, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			err := graceful.Run(ctx, func(s *ctxshutdown.Swansong) error {
				cancel(errTooLate)
				<-s.Done()
				ln, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					return err
				}
				if test.wrap == nil {
					return httpdrain.Serve(s, handler(ok), ln, httpdrain.WithLinger(-1, -1))
				}
				return test.wrap(httpdrain.Serve(s, handler(ok), ln))
			}, graceful.WithSignals())
			if got := graceful.ExitCode(err); got != test.code {
				t.Errorf("exit code %d, want %d: %v", got, test.code, err)
			}
		})
	}
}

// If the user calls Shutdown of the http.Server, Serve returns http.ErrServerClosed itself, as
// http.Server.Serve does.
func TestServe_ReturnsErrServerClosedIfUserCallsShutdown(t *testing.T) {
	srv := handler(ok)
	v := start(t, srv)
	p := dial(t, v.addr)
	p.send(get)
	p.answered()
	if err := srv.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if err := <-v.done; err != http.ErrServerClosed || v.s.Err() != nil {
		t.Errorf("Serve: %v, scope: %v", err, v.s.Err())
	}
}

// A handler may call os.Exit, and the process then exits with the given code.
func TestServe_HandlerMayCallOSExit(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), exitVar+"=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("%v, want exit code 7\n%s", err, out)
	}
}

func TestServe_LogsUnfinishedRequests(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch a.Key {
		case "time", "after", "age", "remote":
			return slog.Attr{}
		}
		return a
	}}))
	entered, leave := make(chan struct{}), make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders/{id}", func(http.ResponseWriter, *http.Request) { close(entered); <-leave })
	defer close(leave)
	v := start(t, &http.Server{Handler: mux}, httpdrain.WithLogger(log), httpdrain.WithName("shop"))
	p := dial(t, v.addr)
	p.send("GET /orders/7 HTTP/1.1\r\nHost: test\r\n\r\n")
	<-entered
	v.s.Shutdown()
	v.s.Force(errTooLate)
	err := <-v.done
	if e := err.Error(); !strings.HasPrefix(e, "httpdrain: shop: drain cut short (too late) with 1 request left: GET /orders/{id} from 127.0.0.1:") {
		t.Errorf("Serve: %s", e)
	}
	want := `
level=INFO msg="httpdrain: draining" server=shop connections=1 cause="ctxshutdown: shut down"
level=WARN msg="httpdrain: request cut short" server=shop method=GET route="GET /orders/{id}" hijacked=false
level=WARN msg="httpdrain: drain cut short" server=shop requests=1 cause="too late"
`[1:]
	testkit.Equal(t, "log", out.String(), want)
}

func TestCutError_ListsRequests(t *testing.T) {
	e := &httpdrain.CutError{Name: "http", Cause: errTooLate}
	if got, want := e.Error(), "httpdrain: http: drain cut short (too late) with no request left"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	e.Cut = []httpdrain.Cut{
		{Method: "GET", Route: "/events", Remote: "192.0.2.1:1", Age: 90 * time.Second},
		{Method: "GET", Route: "GET /ws", Remote: "192.0.2.1:2", Age: 1500 * time.Microsecond, Hijacked: true},
		{Remote: "192.0.2.1:3", Age: time.Second},
		{}, {}, {}, {},
	}
	want := "httpdrain: http: drain cut short (too late) with 7 requests left: GET /events from 192.0.2.1:1 for 1m30s, " +
		"GET /ws (hijacked) from 192.0.2.1:2 for 2ms, an incomplete header from 192.0.2.1:3 for 1s, " +
		"an incomplete header for 0s, an incomplete header for 0s and 2 more"
	if got := e.Error(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// Hijack after the stop does not set Connection: close in the header. httputil.ReverseProxy calls
// Hijack to upgrade a connection and then sends that header with the status 101, and a client
// may refuse a 101 whose header says Connection: close.
func TestServe_HijackAfterStopSetsNoConnectionClose(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	v := start(t, handler(func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-leave
		w.Header().Set("Upgrade", "echo")
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		testkit.Equal(t, "header", w.Header(), http.Header{"Upgrade": {"echo"}})
	}))
	p := dial(t, v.addr)
	p.send(get)
	<-entered
	v.s.Shutdown()
	<-v.drains
	close(leave)
	p.closed()
	v.drained()
}

// A CutError lists a hijacked connection with the pattern of its request, even if middleware wraps
// the handler.
func TestCutError_NamesPatternOfHijackedConnection(t *testing.T) {
	hijacked, leave := make(chan net.Conn), make(chan struct{})
	defer close(leave)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ws/{room}", func(w http.ResponseWriter, r *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
		}
		hijacked <- c
		<-leave // Force must know the pattern although the handler has not returned
	})
	v := start(t, handler(func(w http.ResponseWriter, r *http.Request) { mux.ServeHTTP(w, r) }))
	p := dial(t, v.addr)
	p.send("GET /ws/7 HTTP/1.1\r\nHost: test\r\n\r\n")
	c := <-hijacked
	defer c.Close()
	v.s.Force(errTooLate)
	err := <-v.done
	var cut *httpdrain.CutError
	if !errors.As(err, &cut) || len(cut.Cut) != 1 || cut.Cut[0].Route != "GET /ws/{room}" {
		t.Errorf("Serve: %v; want one Cut with the pattern", err)
	}
}

// Bytes that the client sends right after the request are in the reader that Hijack returns.
func TestServe_HijackReturnsBufferedBytes(t *testing.T) {
	got := make(chan string, 1)
	v := start(t, handler(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		line, _ := bufio.NewReader(rw).ReadString('\n')
		got <- line
	}))
	p := dial(t, v.addr)
	p.send(get + "first\n")
	if line := <-got; line != "first\n" {
		t.Errorf("read %q", line)
	}
	v.s.Shutdown()
	v.drained()
}

const noFile = "no such file or directory"

var inUse = func() string {
	if runtime.GOOS == "windows" {
		return "Only one usage of each socket address (protocol/network address/port) is normally permitted."
	}
	return "address already in use"
}()
