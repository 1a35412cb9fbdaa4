package httpdrain_test

import (
	"errors"
	"net"
	"os"
	"testing"
)

// Whoever connects while the last look at the queue comes to its end is served.
func TestServe_ConnectsAtTheLastMoment(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	late := &latecomer{TCPListener: ln.(*net.TCPListener), dial: func() *peer { return dial(t, ln.Addr().String()) }, came: make(chan *peer, 1)}
	v := startOn(t, late, handler(ok))
	await("(*latecomer).Accept", "[IO wait]")
	v.s.Shutdown()
	p := <-late.came
	p.send(get)
	p.answered()
	p.closed()
	v.drained()
}

// A latecomer is a listener to which somebody connects when its deadline has passed for the second time in a row.
type latecomer struct {
	*net.TCPListener
	dial   func() *peer
	came   chan *peer
	passed int
}

func (l *latecomer) Accept() (net.Conn, error) {
	c, err := l.TCPListener.Accept()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if l.passed++; l.passed == 3 { // the first time, the stop wakes it
			l.came <- l.dial()
		}
	}
	return c, err
}
