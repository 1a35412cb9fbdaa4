//go:build unix

package httpdrain_test

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// A request that comes when the linger has just ended, and the server's read with it, is in the socket, and is served.
func TestServe_RequestAtTheLastMoment(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	v := startOn(t, lastMoments{ln, t, ended}, handler(ok))
	p := dial(t, v.addr)
	p.send(get)
	p.answered()
	v.s.Shutdown()
	<-ended
	p.send(get)
	if p.answered() {
		t.Error("the response does not say Connection: close")
	}
	p.closed()
	v.drained()
}

// lastMoments is a listener for one connection, of which it says when the drain has ended a read.
type lastMoments struct {
	net.Listener
	t     *testing.T
	ended chan struct{}
}

func (l lastMoments) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &lastMoment{TCPConn: c.(*net.TCPConn), of: l}, nil
}

type lastMoment struct {
	*net.TCPConn
	of    lastMoments
	times int
}

// Read returns from the first read that is ended when something has come after all.
func (c *lastMoment) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	if len(b) == 1 || !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err // one byte is how the server looks whether the client hangs up
	}
	switch c.times++; c.times {
	case 1:
		close(c.of.ended)
		c.arrival()
	case 1000: // a busy machine may take another linger or two
		c.of.t.Error("the read is ended again and again, with a request in the socket")
		return 0, io.EOF
	}
	return n, err
}

// arrival waits until there is something in the socket.
func (c *lastMoment) arrival() {
	raw, err := c.SyscallConn()
	if err != nil {
		c.of.t.Error(err)
		return
	}
	for come := false; !come; { // the drain ends the wait, too
		c.SetReadDeadline(time.Time{})
		raw.Read(func(fd uintptr) bool {
			_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
			come = err == nil
			return come
		})
	}
	c.SetReadDeadline(past)
}
