package httpdrain_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
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

// So is one that is set by what NetConn returns.
func TestServe_DeadlinesBehindOurBack(t *testing.T) {
	v := start(t, handler(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		raw := conn.(interface{ NetConn() net.Conn }).NetConn()
		raw.SetReadDeadline(past)
		conn.SetReadDeadline(time.Time{})
		io.WriteString(conn, "?")
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Errorf("the deadline is not lifted: %v", err)
		}
	}))
	p := dial(t, v.addr)
	p.send(get)
	if _, err := p.in.ReadByte(); err != nil {
		t.Fatal(err)
	}
	p.send("!")
	p.closed()
}

// And so is one of a listener of the user's, which may keep what it has accepted.
func TestServe_DeadlinesOfListeners(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	kept := make(chan net.Conn, 1)
	v := startOn(t, keeping{ln, kept}, handler(func(w http.ResponseWriter, r *http.Request) {
		select {
		case c := <-kept:
			c.SetReadDeadline(past)
			<-r.Context().Done() // the server has met it
		default: // the second request
		}
		ok(w, r)
	}))
	p := dial(t, v.addr)
	for range 2 {
		p.send(get)
		p.answered()
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
	v := start(t, handler(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		conn.SetReadDeadline(time.Time{})
		conn.Close()
		if err := conn.SetReadDeadline(time.Time{}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("lifted: %v", err)
		}
	}))
	p := dial(t, v.addr)
	p.send(get)
	p.closed()
}
