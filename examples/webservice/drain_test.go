package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/ctxshutdown"
)

// serving runs serve on a scope of its own, which the test is to shut down.
func serving(t *testing.T, h http.HandlerFunc, linger time.Duration) (addr string, s *ctxshutdown.Swansong) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s = ctxshutdown.New(context.Background())
	served := make(chan error, 1)
	s.Go(func(context.Context) { served <- serve(s, ln, h, linger) })
	t.Cleanup(func() {
		if err := s.Shutdown().Wait(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return ln.Addr().String(), s
}

// patient is for tests in which no connection is to be closed for being quiet, however slow the machine.
const patient = time.Hour

func ok(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }

const get = "GET / HTTP/1.1\r\nHost: shop\r\n\r\n"

// A peer is a connection under the test's control.
type peer struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

func dial(t *testing.T, addr string) *peer {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &peer{t, conn, bufio.NewReader(conn)}
}

func (p *peer) send(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p, text); err != nil {
		p.t.Fatal(err)
	}
}

// answered reads a complete response and returns whether the connection may be used again.
func (p *peer) answered() (keep bool) {
	p.t.Helper()
	status, keep, body, err := readResponse(p.in)
	if err != nil || status != http.StatusOK || body != "ok" {
		p.t.Fatalf("lost: status %d, body %q, error %v", status, body, err)
	}
	return keep
}

// closed waits until the server has closed the connection, with nothing more on it.
func (p *peer) closed() {
	p.t.Helper()
	if b, err := p.in.ReadByte(); err != io.EOF {
		p.t.Fatalf("read %q, %v; want the end", b, err)
	}
}

func TestDrain_HeaderInPieces(t *testing.T) {
	addr, s := serving(t, ok, linger)
	quiet, unused, begun, fresh := dial(t, addr), dial(t, addr), dial(t, addr), dial(t, addr)
	for _, p := range []*peer{quiet, begun} {
		p.send(get)
		p.answered()
	}
	begun.send(get[:20])
	fresh.send(get[:20])
	s.Shutdown()
	quiet.closed() // the linger is over
	unused.closed()

	for _, p := range []*peer{begun, fresh} {
		p.send(get[20:])
		if p.answered() {
			t.Error("the response does not say Connection: close")
		}
		p.closed()
	}
}

func TestDrain_RequestsOnIdleConnectionsAreServed(t *testing.T) {
	addr, s := serving(t, ok, patient)
	p := dial(t, addr)
	p.send(get)
	p.answered()
	s.Shutdown()
	for keep := true; keep; { // until the drain has come as far as saying so
		p.send(get)
		keep = p.answered()
	}
	p.closed()
}

// A process that was kept from running for longer than the linger finds the deadline passed and the request in the
// socket. The deadline is set before the read here, which is that case without the waiting.
func TestDrain_RequestInTheSocketIsReadAfterTheLinger(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	p := dial(t, ln.Addr().String())
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	c := &connection{TCPConn: accepted.(*net.TCPConn), drain: &drain{}}
	p.send(get)
	c.ending.Store(true)
	c.SetReadDeadline(time.Unix(1, 0))
	buf := make([]byte, len(get))
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != get {
		t.Errorf("read %q, %v", buf, err)
	}
}

// Who has connected is served, also when the server has not accepted anybody by the time of the stop.
func TestDrain_ConnectionsInTheQueueAreServed(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var peers []*peer
	for range 100 {
		p := dial(t, ln.Addr().String())
		p.send(get)
		peers = append(peers, p)
	}
	s := ctxshutdown.New(context.Background())
	g := s.Guard()
	done := s.Shutdown()
	served := make(chan error, 1)
	go func() {
		defer g.Release()
		served <- serve(s, ln, http.HandlerFunc(ok), patient)
	}()
	for _, p := range peers {
		for keep := p.answered(); keep; keep = p.answered() { // until the drain says that it is the last one
			p.send(get)
		}
	}
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
	if err := done.Wait(context.Background()); err != nil {
		t.Error(err)
	}
}

// The stop comes at the busiest moment, many times.
func TestDrain_UnderLoad(t *testing.T) {
	for range 10 {
		var requests atomic.Int32
		busy := make(chan struct{})
		addr, s := serving(t, func(w http.ResponseWriter, r *http.Request) {
			if requests.Add(1) == 500 {
				close(busy)
			}
			ok(w, r)
		}, patient)
		var (
			wg    sync.WaitGroup
			mu    sync.Mutex
			total tally
		)
		for i := range orderClients {
			wg.Go(func() {
				c := client{addr: addr, request: orderRequest(i)}
				c.run()
				mu.Lock()
				defer mu.Unlock()
				total.add(c.tally)
			})
		}
		<-busy
		s.Shutdown()
		wg.Wait()
		want := tally{Started: int(requests.Load()), Answered: int(requests.Load()), Refused: tries * orderClients}
		if diff := cmp.Diff(want, total); diff != "" {
			t.Fatalf("tally (-want +got):\n%s", diff)
		}
	}
}

// A request that hangs costs the disk nothing.
func TestEnd_EachStageHasItsOwnLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		main := ctxshutdown.New(context.Background())
		defer main.Shutdown()
		web, _ := ctxshutdown.WithCancel(main, ctxshutdown.WithName("http"))
		disk, _ := ctxshutdown.WithCancel(main, ctxshutdown.WithName("disk"))
		hangs := web.Guard()
		defer hangs.Release()
		saved := false
		disk.Go(func(work context.Context) {
			<-disk.Done()
			saved = ctxshutdown.Sleep(work, time.Second)
		})

		var stuck *ctxshutdown.DrainError
		if err := end(web); !errors.As(err, &stuck) || stuck.Report.String() != "1 guard: http ×1" {
			t.Errorf("end of http: %v; want an error that names it", err)
		}
		if web.Work().Err() == nil {
			t.Error("the Work of a stage beyond its limit goes on")
		}
		if err := end(disk); err != nil || !saved {
			t.Errorf("end of disk: %v, saved: %v", err, saved)
		}
	})
}
