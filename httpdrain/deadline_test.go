package httpdrain_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

var past = time.Unix(1, 0)

// A handler may set read deadlines, and lift them, as often as it likes.
func TestServe_ReadDeadlines(t *testing.T) {
	v := start(t, handler(func(w http.ResponseWriter, r *http.Request) {
		c, b := http.NewResponseController(w), make([]byte, 1)
		c.EnableFullDuplex()
		for range 3 {
			c.SetReadDeadline(past)
			if _, err := r.Body.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("after the deadline: %v", err)
			}
			for range 2 {
				if err := c.SetReadDeadline(time.Time{}); err != nil {
					t.Errorf("lifted: %v", err)
				}
			}
			io.WriteString(w, "?")
			c.Flush()
			if _, err := io.ReadFull(r.Body, b); err != nil {
				t.Errorf("without a deadline: %v", err)
			}
		}
	}))
	p := dial(t, v.addr)
	p.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 1000\r\n\r\n")
	r, err := http.ReadResponse(p.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	for range 3 {
		if _, err := io.ReadFull(r.Body, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		p.send("!")
	}
	io.Copy(io.Discard, r.Body)
}

// A deadline that a hook of the user's sets is lifted by the server, as it is without us.
func TestServe_DeadlinesOfHooks(t *testing.T) {
	srv := handler(ok)
	srv.ConnState = func(nc net.Conn, state http.ConnState) {
		if state == http.StateIdle {
			nc.SetReadDeadline(past)
		}
	}
	p := dial(t, start(t, srv).addr)
	for range 2 {
		p.send(get)
		p.answered()
	}
}

// So is one of a connection that they were shown before TLS began.
func TestServe_DeadlinesBehindOurBack(t *testing.T) {
	shown := make(chan net.Conn, 1)
	srv := secured(overdue(shown))
	srv.TLSConfig.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		shown <- hello.Conn.(interface{ NetConn() net.Conn }).NetConn()
		return nil, nil
	}
	conn, err := tls.Dial("tcp", start(t, srv).addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	p := newPeer(t, conn)
	for range 2 {
		p.send(get)
		p.answered()
	}
}

// And so is one of a listener of the user's, which may keep what it has accepted.
func TestServe_DeadlinesOfListeners(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	kept := make(chan net.Conn, 1)
	v := startOn(t, keeping{ln, kept}, handler(overdue(kept)))
	p := dial(t, v.addr)
	for range 2 {
		p.send(get)
		p.answered()
	}
}

// overdue sets a deadline that has passed on a connection, in the request of whoever has got hold of one.
func overdue(kept <-chan net.Conn) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case c := <-kept:
			c.SetReadDeadline(past)
			<-r.Context().Done() // the server has met it
		default: // the second request
		}
		ok(w, r)
	}
}

type keeping struct {
	net.Listener
	kept chan<- net.Conn
}

func (k keeping) Accept() (net.Conn, error) {
	c, err := k.Listener.Accept()
	if err == nil {
		k.kept <- c
	}
	return c, err
}

// Whoever lifts a deadline of a connection that is closed is told.
func TestServe_DeadlinesAfterClose(t *testing.T) {
	srv := new(http.Server)
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		srv.Close()
		if err := http.NewResponseController(w).SetReadDeadline(time.Time{}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("lifted: %v", err)
		}
	})
	p := dial(t, start(t, srv).addr)
	p.send(get)
	p.closed()
}

// A hijacked connection is read from in more ways than one, and a deadline ends each.
func TestServe_DeadlinesAfterHijack(t *testing.T) {
	v := start(t, handler(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		ended := make(chan error, 1)
		go func() {
			_, err := conn.(io.WriterTo).WriteTo(io.Discard)
			ended <- err
		}()
		await("(*TCPConn).WriteTo", "(*FD).Read")
		conn.SetReadDeadline(past)
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("WriteTo ends with %v", err)
		}
	}))
	p := dial(t, v.addr)
	p.send(get)
	p.closed()
}

// Where the server has begun to look whether the client hangs up, it comes back from that, and the connection is quiet.
func TestServe_ClientDoesNotHangUp(t *testing.T) {
	v := start(t, handler(func(w http.ResponseWriter, r *http.Request) {
		await("(*connReader).backgroundRead", "(*FD).Read")
		ok(w, r)
	}))
	p := dial(t, v.addr)
	for range 2 {
		p.send(get)
		p.answered()
	}
	v.s.Shutdown()
	p.closed()
	v.drained()
}

// await returns when a goroutine is in all of these functions.
func await(functions ...string) {
	stacks := make([]byte, 1<<20)
	for {
		for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if !slices.ContainsFunc(functions, func(f string) bool { return !strings.Contains(stack, f) }) {
				return
			}
		}
		runtime.Gosched()
	}
}
