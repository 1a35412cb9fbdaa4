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

// If a request arrives just after the drain has ended the server's read, it is found in the socket
// and served.
func TestServe_AnswersRequestThatArrivesBetweenLastReadAndClose(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	v := startOn(t, endedReadListener{ln, t, ended}, handler(ok))
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

// An endedReadListener accepts one connection. It closes the channel ended when the drain has ended
// the server's read on the connection.
type endedReadListener struct {
	net.Listener
	t     *testing.T
	ended chan struct{}
}

func (l endedReadListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &endedReadConn{TCPConn: c.(*net.TCPConn), of: l}, nil
}

type endedReadConn struct {
	*net.TCPConn
	of    endedReadListener
	times int
}

// Read reads from the connection. When the drain has ended a read for the first time, Read returns
// only after data has arrived in the socket.
func (c *endedReadConn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	if len(b) == 1 || !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err // the drain has not ended this read, or it is the read of one byte that shows whether the client disconnects
	}
	switch c.times++; c.times {
	case 1:
		close(c.of.ended)
		c.waitForData()
	// on a busy machine, the drain may end several reads before the server reads the request
	case 1000:
		c.of.t.Error("reads are ended again and again although a request is in the socket")
		return 0, io.EOF
	}
	return n, err
}

// waitForData waits until the socket has data.
func (c *endedReadConn) waitForData() {
	raw, err := c.SyscallConn()
	if err != nil {
		c.of.t.Error(err)
		return
	}
	// The drain sets a deadline, which ends raw.Read before there is data. Then call it again.
	for hasData := false; !hasData; {
		c.SetReadDeadline(time.Time{})
		raw.Read(func(fd uintptr) bool {
			_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
			hasData = err == nil
			return hasData
		})
	}
	c.SetReadDeadline(past)
}
