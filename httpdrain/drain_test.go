package httpdrain_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/httpdrain"
)

func TestServe_RequestsOnIdleConnectionsAreServed(t *testing.T) {
	v := start(t, handler(ok), patient)
	p := dial(t, v.addr)
	p.send(get)
	p.answered()
	v.s.Shutdown()
	for keep := true; keep; { // until the drain has come as far as saying so
		p.send(get)
		keep = p.answered()
	}
	p.closed()
	v.drained()
}

func TestServe_HeaderInPieces(t *testing.T) {
	v := start(t, handler(ok))
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
	quiet.closed() // the linger is over
	for _, p := range unused {
		p.closed() // for everybody, and not only for the first
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

// A stoppedListener accepts nobody before the stop.
type stoppedListener struct {
	*net.TCPListener
	stop chan struct{}
}

func (l *stoppedListener) Accept() (net.Conn, error) {
	<-l.stop
	return l.TCPListener.Accept()
}

// Who has connected is served, also when the server has not accepted anybody by the time of the stop.
func TestServe_ConnectionsInTheQueueAreServed(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln := &stoppedListener{tcp.(*net.TCPListener), make(chan struct{})}
	v := startOn(t, ln, handler(ok), patient)
	var peers []*peer
	for range 100 {
		p := dial(t, v.addr)
		p.send(get)
		peers = append(peers, p)
	}
	v.s.Shutdown()
	close(ln.stop)
	for _, p := range peers {
		for keep := p.answered(); keep; keep = p.answered() { // until the drain says that it is the last one
			p.send(get)
		}
	}
	v.drained()
}

// The stop comes at the busiest moment, many times.
func TestServe_UnderLoad(t *testing.T) {
	for range 10 {
		var requests atomic.Int32
		busy := make(chan struct{})
		v := start(t, handler(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			if requests.Add(1) == 500 {
				close(busy)
			}
			ok(w, r)
		}), patient)
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
							t.Errorf("lost: %v", err)
							return
						}
						resp, err := http.ReadResponse(p.in, nil)
						if err != nil {
							t.Errorf("lost: %v", err)
							return
						}
						if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "ok" {
							t.Errorf("lost: %q, %v", b, err)
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
			t.Errorf("%d requests answered, %d carried out", a, r)
		}
	}
}

func TestServe_AThousandIdleConnections(t *testing.T) {
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

// What was asked before the stop is answered after it, and says that it is the last.
func TestServe_ResponsesUnderWaySayClose(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	var scope *ctxshutdown.Swansong
	var ctx context.Context
	v := start(t, handler(func(w http.ResponseWriter, r *http.Request) {
		scope, _ = ctxshutdown.FromContext(r.Context())
		ctx = r.Context()
		close(entered)
		<-leave
		ok(w, r)
	}), patient)
	p := dial(t, v.addr)
	p.send(get)
	<-entered
	v.s.Shutdown()
	<-v.drains
	if scope.Err() == nil || ctx.Err() != nil {
		t.Errorf("scope: %v, context: %v; want the one done, and the other not", scope.Err(), ctx.Err())
	}
	if got := v.s.GuardReport().String(); !strings.Contains(got, "http ×2") { // Serve's and the request's
		t.Errorf("report: %s", got)
	}
	close(leave)
	if p.answered() {
		t.Error("the response does not say Connection: close")
	}
	p.closed()
	v.drained()
}

func TestServe_TheClientGoesAway(t *testing.T) {
	entered, gone := make(chan struct{}), make(chan struct{})
	v := start(t, handler(func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		close(gone)
	}), patient)
	p := dial(t, v.addr)
	p.send(get)
	<-entered
	v.s.Shutdown()
	p.Close()
	<-gone
	v.drained()
}

func TestServe_EventStream(t *testing.T) {
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
		t.Errorf("read %q, %v", got, err)
	}
	v.drained()
}

func TestServe_SlowUpload(t *testing.T) {
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
	unused.closed() // the linger is over
	p.send("the")
	p.receives(200, "feathe <nil>")
	p.closed()
	v.drained()
}

func TestServe_SlowReader(t *testing.T) {
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

// A hijacked connection is waited for, also when its handler has returned.
func TestServe_HijackedConnections(t *testing.T) {
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
	if tcp, ok := conn.(interface{ NetConn() net.Conn }).NetConn().(*net.TCPConn); !ok {
		t.Errorf("NetConn returns %T", tcp)
	}
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
		t.Errorf("read %q, %v", b, err)
	}
	select {
	case err := <-v.done:
		t.Fatalf("Serve has returned: %v", err)
	default:
	}
	conn.Close()
	conn.Close() // again changes nothing
	v.drained()
}

func TestServe_Force(t *testing.T) {
	var entered sync.WaitGroup
	entered.Add(3)
	leave := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		r.Method, r.URL.Path = "TRACE", "/elsewhere" // middleware does such things
		entered.Done()
		<-r.Context().Done()
		if cause := context.Cause(r.Context()); !errors.Is(cause, errTooLate) {
			t.Errorf("cause: %v", cause)
		}
		<-leave // it does not listen
	})
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).Flush()
		r.Pattern = "of somebody else"
		entered.Done()
		<-leave
	})
	mux.HandleFunc("/ws", func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).Hijack()
		entered.Done()
	})
	v := start(t, &http.Server{Handler: mux}, patient)
	defer close(leave)
	var peers []*peer
	for _, path := range []string{"/orders/7", "/events", "/ws"} {
		p := dial(t, v.addr)
		p.send("GET " + path + " HTTP/1.1\r\nHost: test\r\n\r\n")
		peers = append(peers, p)
	}
	entered.Wait()
	begun := dial(t, v.addr)
	begun.send("GET /never")
	idle := dial(t, v.addr)
	idle.send(get)
	idle.receives(404, "404 page not found")
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
			t.Errorf("nobody at %v in %v", p.LocalAddr(), err)
		}
	}
	sortCuts(cut.Cut)
	want := []httpdrain.Cut{
		{},
		{Method: "GET", Route: "/events"},
		{Method: "GET", Route: "/ws", Hijacked: true},
		{Method: "GET", Route: "GET /orders/{id}"},
	}
	if diff := cmp.Diff(want, cut.Cut); diff != "" {
		t.Errorf("cut (-want +got):\n%s", diff)
	}
}

var errTooLate = errors.New("too late")

// A handler that panics or ends its goroutine takes its connection with it, and nothing else.
func TestServe_HandlersThatPanic(t *testing.T) {
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
			}), patient)
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

func TestServe_TwoListeners(t *testing.T) {
	srv := handler(ok)
	shutdown := make(chan struct{})
	srv.RegisterOnShutdown(func() { close(shutdown) })
	one, two := start(t, srv, patient), start(t, srv, patient)
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
			t.Error("the other listener drains, too")
		}
	}
	select {
	case <-shutdown:
		t.Error("the server was shut down with a listener left")
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
