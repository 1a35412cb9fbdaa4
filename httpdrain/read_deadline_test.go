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

// A handler may set and lift read deadlines any number of times.
func TestServe_HandlerMaySetAndRemoveReadDeadlines(t *testing.T) {
	v := start(t, handler(func(w http.ResponseWriter, r *http.Request) {
		c, b := http.NewResponseController(w), make([]byte, 1)
		c.EnableFullDuplex()
		for range 3 {
			c.SetReadDeadline(past)
			if _, err := r.Body.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("read after the deadline: %v", err)
			}
			for range 2 {
				if err := c.SetReadDeadline(time.Time{}); err != nil {
					t.Errorf("lift the deadline: %v", err)
				}
			}
			io.WriteString(w, "?")
			c.Flush()
			if _, err := io.ReadFull(r.Body, b); err != nil {
				t.Errorf("read without a deadline: %v", err)
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

// The server lifts a read deadline that a hook of the user has set, as net/http does.
func TestServe_RemovesReadDeadlineSetByHookBeforeNextRequest(t *testing.T) {
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

// The server removes a read deadline that was set on the raw connection beneath TLS, which NetConn
// returns.
func TestServe_RemovesReadDeadlineSetOnRawConnectionBeneathTLS(t *testing.T) {
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

// The server lifts a read deadline that the user's listener has set on an accepted connection.
func TestServe_RemovesReadDeadlineSetByListenerBeforeNextRequest(t *testing.T) {
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

// overdue returns a handler. In the first request, the handler sets a read deadline in the past on
// the connection that it receives from the channel kept.
func overdue(kept <-chan net.Conn) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case c := <-kept:
			c.SetReadDeadline(past)
			<-r.Context().Done() // net/http cancels it when a read of the connection has failed
		default: // the second request: kept has no connection left
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

// Lifting the read deadline of a closed connection returns an error.
func TestServe_ClearingDeadlineOfClosedConnectionReturnsError(t *testing.T) {
	srv := new(http.Server)
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		srv.Close()
		if err := http.NewResponseController(w).SetReadDeadline(time.Time{}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("lift the deadline: %v", err)
		}
	})
	p := dial(t, start(t, srv).addr)
	p.send(get)
	p.closed()
}

// A read deadline that is set on the connection inside a hijacked TLS connection also ends WriteTo,
// which does not call Read.
func TestHijack_ReadDeadlineEndsWriteToOfTLSConnection(t *testing.T) {
	v := start(t, secured(func(w http.ResponseWriter, _ *http.Request) {
		hijacked, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer hijacked.Close()
		conn := hijacked.(*tls.Conn).NetConn()
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
	conn, err := tls.Dial("tcp", v.addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	p := newPeer(t, conn)
	p.send(get)
	p.closed()
}

// While a handler runs, the server reads a byte to notice that the client disconnects. When the
// handler returns, that read ends, and the connection counts as quiet.
func TestServe_ClosesConnectionAsIdleOnceItsHandlerReturned(t *testing.T) {
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

// await waits until there is a goroutine whose stack contains all of these functions.
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
