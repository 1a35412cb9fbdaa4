package httpdrain_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/internal/testkit"
)

func TestServe_AnswersRequestOnIdleConnectionAfterStop(t *testing.T) {
	v := start(t, handler(ok), longLinger)
	p := dial(t, v.addr)
	p.send(get)
	p.answered()
	v.s.Shutdown()
	for keep := true; keep; { // send several requests, because the drain may begin a little after the stop
		p.send(get)
		keep = p.answered()
	}
	p.closed()
	v.drained()
}

func TestServe_AnswersRequestWhoseHeaderArrivesInPiecesAfterStop(t *testing.T) {
	v := start(t, handler(ok), httpdrain.WithLinger(100*time.Millisecond, 100*time.Millisecond))
	quiet, begun, fresh := dial(t, v.addr), dial(t, v.addr), dial(t, v.addr)
	var unused []*peer
	for range 32 {
		unused = append(unused, dial(t, v.addr))
	}
	for _, p := range []*peer{quiet, begun} {
		p.send(get)
		p.answered()
	}
	begun.send(get[:20])
	fresh.send(get[:20])
	v.s.Shutdown()
	quiet.closed() // returns when the drain has closed the quiet connection, after the linger
	for _, p := range unused {
		p.closed() // the server must close all quiet connections, not only the first
	}
	for _, p := range []*peer{begun, fresh} {
		p.send(get[20:])
		if p.answered() {
			t.Error("the response does not say Connection: close")
		}
		p.closed()
	}
	v.drained()
}

// A delayedListener accepts no connection before the stop.
type delayedListener struct {
	*net.TCPListener
	stop chan struct{}
}

func (l *delayedListener) Accept() (net.Conn, error) {
	<-l.stop
	return l.TCPListener.Accept()
}

// Connections that are in the accept queue when the scope is stopped are served.
func TestServe_ServesConnectionsThatWaitForAcceptAtStop(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln := &delayedListener{tcp.(*net.TCPListener), make(chan struct{})}
	v := startOn(t, ln, handler(ok), longLinger)
	var peers []*peer
	for range 100 {
		p := dial(t, v.addr)
		p.send(get)
		peers = append(peers, p)
	}
	v.s.Shutdown()
	close(ln.stop)
	for _, p := range peers {
		// Send requests until a response says Connection: close.
		for keep := p.answered(); keep; keep = p.answered() {
			p.send(get)
		}
	}
	v.drained()
}

// A TLS listener has no method SetDeadline, but the listener inside it has, so the connections in
// its accept queue are served, too.
func TestServe_ServesConnectionsThatWaitForAcceptOfTLSListener(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln := &delayedListener{tcp.(*net.TCPListener), make(chan struct{})}
	v := startOn(t, tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{certificate()}}), handler(ok), longLinger)
	p := dial(t, v.addr)
	v.s.Shutdown()
	// If Serve took ln for a listener without SetDeadline, it would close ln during this pause.
	time.Sleep(50 * time.Millisecond)
	close(ln.stop)
	p = newPeer(t, tls.Client(p.Conn, &tls.Config{InsecureSkipVerify: true}))
	p.send(get)
	for keep := p.answered(); keep; keep = p.answered() { // send requests until a response says Connection: close
		p.send(get)
	}
	v.drained()
}

// The SetDeadline of a silentListener has no effect, as in a wrapper that embeds a listener and
// calls that listener's Accept in a separate goroutine.
type silentListener struct{ net.Listener }

func (silentListener) SetDeadline(time.Time) error { return nil }

// If the listener's Accept does not return when its deadline has passed, the drain waits for it for
// one second, and then closes the listener.
func TestServe_ReturnsSoonEvenIfAcceptIgnoresDeadlineOfListener(t *testing.T) {
	for name, wrap := range map[string]func(net.Listener) net.Listener{
		"TCP": func(ln net.Listener) net.Listener { return ln },
		"TLS": func(ln net.Listener) net.Listener { return tls.NewListener(ln, &tls.Config{}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := ctxshutdown.New(context.Background())
				done := make(chan error, 1)
				go func() { done <- httpdrain.Serve(s, &http.Server{}, wrap(silentListener{testkit.Listen()})) }()
				synctest.Wait()
				begin := time.Now()
				s.Shutdown()
				testkit.Equal(t, "error of Serve", <-done, nil)
				testkit.Equal(t, "time", time.Since(begin), time.Second)
			})
		})
	}
}

// While the server is busy with a connection that it has accepted, the listener stays open, so that
// it can accept those in the queue afterwards.
func TestServe_KeepsListenerOpenUntilWaitingConnectionsAreAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ln := ctxshutdown.New(context.Background()), testkit.Listen()
		var first sync.Once
		srv := handler(ok)
		srv.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
			first.Do(func() { time.Sleep(time.Minute) })
			return ctx
		}
		done := make(chan error, 1)
		go func() { done <- httpdrain.Serve(s, srv, ln) }()
		var peers []*peer
		for range 10 {
			peers = append(peers, newPeer(t, ln.Dial()))
		}
		synctest.Wait()
		s.Shutdown()
		for _, p := range peers {
			p.send(get)
			p.answered()
		}
		testkit.Equal(t, "error of Serve", <-done, nil)
	})
}

// Clients send requests without a pause while the server is stopped. No request is lost.
func TestServe_LosesNoRequestUnderLoad(t *testing.T) {
	for range 10 {
		var requests atomic.Int32
		busy := make(chan struct{})
		v := start(t, handler(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			if requests.Add(1) == 500 {
				close(busy)
			}
			ok(w, r)
		}), longLinger)
		var answered atomic.Int32
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				for {
					conn, err := net.Dial("tcp", v.addr)
					if err != nil {
						return
					}
					p := newPeer(t, conn)
					for keep := true; keep; {
						if _, err := io.WriteString(p, "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\nbody"); err != nil {
							t.Errorf("a request was lost: %v", err)
							return
						}
						resp, err := http.ReadResponse(p.in, nil)
						if err != nil {
							t.Errorf("a request was lost: %v", err)
							return
						}
						if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "ok" {
							t.Errorf("a request was lost: response %q, error %v", b, err)
						}
						answered.Add(1)
						keep = !resp.Close
					}
					conn.Close()
				}
			})
		}
		<-busy
		v.s.Shutdown()
		wg.Wait()
		v.drained()
		if a, r := answered.Load(), requests.Load(); a != r {
			t.Errorf("%d requests were answered, but %d handlers have run", a, r)
		}
	}
}

func TestServe_ClosesThousandIdleConnections(t *testing.T) {
	v := start(t, handler(ok))
	peers := make([]*peer, 1000)
	for i := range peers {
		peers[i] = dial(t, v.addr)
		peers[i].send(get)
		peers[i].answered()
	}
	v.s.Shutdown()
	for _, p := range peers {
		p.closed()
	}
	v.drained()
}

// A request was read before the stop, and its handler returns after the stop. The response says
// Connection: close.
func TestServe_ResponseToRequestReadBeforeStopSaysConnectionClose(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	var scope *ctxshutdown.Swansong
	var ctx context.Context
	v := start(t, handler(func(w http.ResponseWriter, r *http.Request) {
		scope, _ = ctxshutdown.FromContext(r.Context())
		ctx = r.Context()
		close(entered)
		<-leave
		ok(w, r)
	}), longLinger)
	p := dial(t, v.addr)
	p.send(get)
	<-entered
	v.s.Shutdown()
	<-v.drains
	if scope.Err() == nil || ctx.Err() != nil {
		t.Errorf("scope: %v, context: %v; want the scope stopped, and the context not", scope.Err(), ctx.Err())
	}
	// Serve and the request each hold a guard.
	if got := v.s.GuardReport().String(); !strings.Contains(got, "http ×2") {
		t.Errorf("wrong guard report: %s", got)
	}
	close(leave)
	if p.answered() {
		t.Error("the response does not say Connection: close")
	}
	p.closed()
	v.drained()
}

func TestServe_DrainsAfterClientDisconnects(t *testing.T) {
	entered, gone := make(chan struct{}), make(chan struct{})
	v := start(t, handler(func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		close(gone)
	}), longLinger)
	p := dial(t, v.addr)
	p.send(get)
	<-entered
	v.s.Shutdown()
	p.Close()
	<-gone
	v.drained()
}

func TestServe_EventStreamEndsAtStop(t *testing.T) {
	v := start(t, handler(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: hello\n\n")
		w.(http.Flusher).Flush()
		scope, _ := ctxshutdown.FromContext(r.Context())
		select {
		case <-scope.Done():
			fmt.Fprint(w, "data: bye\n\n")
		case <-r.Context().Done():
			t.Error("the request's context ended with the stop")
		}
	}))
	resp, err := http.Get("http://" + v.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	hello := make([]byte, len("data: hello\n\n"))
	io.ReadFull(resp.Body, hello)
	v.s.Shutdown()
	rest, err := io.ReadAll(resp.Body)
	if got := string(hello) + string(rest); err != nil || got != "data: hello\n\ndata: bye\n\n" {
		t.Errorf("the client read %q and the error %v", got, err)
	}
	v.drained()
}

func TestServe_WaitsForSlowUpload(t *testing.T) {
	entered := make(chan struct{})
	v := start(t, handler(func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		b, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %v", b, err)
	}))
	p, unused := dial(t, v.addr), dial(t, v.addr)
	p.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 6\r\n\r\nfea")
	<-entered
	v.s.Shutdown()
	<-v.drains
	unused.closed() // returns when the drain has closed the unused connection, after the linger
	p.send("the")
	p.readResponse(200, "feathe <nil>")
	p.closed()
	v.drained()
}

func TestServe_WaitsForSlowReader(t *testing.T) {
	const size = 32 << 20
	v := start(t, handler(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(size))
		io.CopyN(w, zeros{}, size)
	}))
	p := dial(t, v.addr)
	p.send(get)
	if _, err := p.in.Peek(1); err != nil {
		t.Fatal(err)
	}
	v.s.Shutdown()
	<-v.drains
	resp, err := http.ReadResponse(p.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, resp.Body); n != size || err != nil {
		t.Errorf("read %d of %d bytes: %v", n, size, err)
	}
	v.drained()
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// The drain waits for a hijacked connection even after its handler has returned.
func TestServe_WaitsForHijackedConnectionAfterItsHandlerReturned(t *testing.T) {
	hijacked := make(chan net.Conn, 1)
	v := start(t, handler(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
		}
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
		hijacked <- conn
	}))
	p := dial(t, v.addr)
	p.send(get)
	conn := <-hijacked
	if resp, err := http.ReadResponse(p.in, nil); err != nil || resp.StatusCode != 101 {
		t.Fatal(resp, err)
	}
	v.s.Shutdown()
	<-v.drains
	if report := v.s.GuardReport().String(); !strings.Contains(report, "http/hijacked ×1") {
		t.Errorf("the hijacked connection is not in the report: %s", report)
	}
	go io.Copy(conn, conn)
	p.send("still here")
	b := make([]byte, len("still here"))
	if _, err := io.ReadFull(p.in, b); err != nil || string(b) != "still here" {
		t.Errorf("the client read %q and the error %v", b, err)
	}
	select {
	case err := <-v.done:
		t.Fatalf("Serve has returned: %v", err)
	default:
	}
	conn.Close()
	conn.Close() // a second Close has no effect
	v.drained()
}

// A handler that upgrades its connection during the drain, as websocket libraries do, sends the
// header that it has set: a client refuses a 101 whose header says Connection: close.
func TestServe_UpgradeResponseDuringDrainKeepsConnectionHeader(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	v := start(t, handler(func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-leave
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "test")
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		conn.Close()
	}))
	p := dial(t, v.addr)
	p.send(get)
	<-entered
	v.s.Shutdown()
	<-v.drains
	close(leave)
	resp, err := http.ReadResponse(p.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := resp.Header.Get("Connection"); resp.StatusCode != 101 || got != "Upgrade" {
		t.Errorf("status %d, Connection: %s, want 101 and Upgrade", resp.StatusCode, got)
	}
	v.drained()
}

func TestServe_ForceEndsAndListsUnfinishedRequests(t *testing.T) {
	var entered sync.WaitGroup
	entered.Add(3)
	leave := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		r.Method, r.URL.Path = "TRACE", "/elsewhere" // some middleware changes the method and the path of a request
		entered.Done()
		<-r.Context().Done()
		if cause := context.Cause(r.Context()); !errors.Is(cause, errTooLate) {
			t.Errorf("cause: %v", cause)
		}
		<-leave // the handler ignores its context
	})
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).Flush()
		r.Pattern = "changed by the handler"
		entered.Done()
		<-leave
	})
	mux.HandleFunc("/ws", func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).Hijack()
		entered.Done()
	})
	v := start(t, &http.Server{Handler: mux}, longLinger)
	defer close(leave)
	begun := dial(t, v.addr)
	begun.send("GET /never")
	var peers []*peer
	for _, path := range []string{"/orders/7", "/events", "/ws"} {
		p := dial(t, v.addr)
		p.send("GET " + path + " HTTP/1.1\r\nHost: test\r\n\r\n")
		peers = append(peers, p)
	}
	entered.Wait()
	idle := dial(t, v.addr)
	idle.send(get)
	idle.readResponse(404, "404 page not found")
	// A request stays in the list of its connection a little longer than the client waits for it.
	for len(v.s.GuardReport().Requests()) > 2 { // /orders and /events remain
		runtime.Gosched()
	}
	v.s.Shutdown()
	<-v.drains
	v.s.Force(errTooLate)
	err := <-v.done
	var cut *httpdrain.CutError
	if !errors.As(err, &cut) || !errors.Is(err, errTooLate) {
		t.Fatalf("Serve: %v; want a CutError that unwraps to its cause", err)
	}
	remotes := map[string]bool{}
	for i := range cut.Cut {
		c := &cut.Cut[i]
		if c.Age <= 0 {
			t.Errorf("%v has no age", c)
		}
		remotes[c.Remote] = true
		c.Age, c.Remote = 0, ""
	}
	for _, p := range append(peers, begun) {
		if !remotes[p.LocalAddr().String()] {
			t.Errorf("%v is not listed in %v", p.LocalAddr(), err)
		}
	}
	sortCuts(cut.Cut)
	want := []httpdrain.Cut{
		{},
		{Method: "GET", Route: "/events"},
		{Method: "GET", Route: "/ws", Hijacked: true},
		{Method: "GET", Route: "GET /orders/{id}"},
	}
	testkit.Equal(t, "cut", cut.Cut, want)
}

var errTooLate = errors.New("too late")

// The request of a CONNECT has a target instead of a path.
func TestForce_CutErrorNamesTargetOfCONNECT(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	defer close(leave)
	v := start(t, handler(func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-leave // the handler ignores its context
	}))
	p := dial(t, v.addr)
	p.send("CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n")
	<-entered
	v.s.Force(errTooLate)
	var cut *httpdrain.CutError
	if err := <-v.done; !errors.As(err, &cut) || len(cut.Cut) != 1 {
		t.Fatalf("Serve: %v; want a CutError with one request", err)
	}
	testkit.Equal(t, "route", cut.Cut[0].Route, "example.com:443")
}

// If a handler panics or calls runtime.Goexit, its connection is closed and the drain goes on.
func TestServe_DrainsDespitePanicInHandler(t *testing.T) {
	for name, end := range map[string]func(){
		"panic":  func() { panic(http.ErrAbortHandler) },
		"Goexit": goexit,
	} {
		t.Run(name, func(t *testing.T) {
			entered, leave := make(chan struct{}), make(chan struct{})
			v := start(t, handler(func(w http.ResponseWriter, r *http.Request) {
				close(entered)
				<-leave
				end()
			}), longLinger)
			p := dial(t, v.addr)
			p.send(get)
			<-entered
			v.s.Shutdown()
			close(leave)
			p.closed()
			v.drained()
		})
	}
}

func TestServe_DrainsTwoListeners(t *testing.T) {
	srv := handler(ok)
	shutdown := make(chan struct{})
	srv.RegisterOnShutdown(func() { close(shutdown) })
	one, two := start(t, srv, longLinger), start(t, srv, longLinger)
	p, q := dial(t, one.addr), dial(t, two.addr)
	p.send(get)
	p.answered()
	q.send(get)
	q.answered()
	one.s.Shutdown()
	for keep := true; keep; {
		p.send(get)
		keep = p.answered()
	}
	one.drained()
	for range 3 {
		q.send(get)
		if !q.answered() {
			t.Error("the other listener is draining too")
		}
	}
	select {
	case <-shutdown:
		t.Error("the server was shut down while a listener was served")
	default:
	}
	two.s.Shutdown()
	for keep := true; keep; {
		q.send(get)
		keep = q.answered()
	}
	two.drained()
	<-shutdown
}
