package httpdrain_test

import (
	"errors"
	"net"
	"os"
	"testing"
)

// If a client connects just as the deadline of the last call of Accept passes, it is served.
func TestServe_ServesConnectionAtLastAccept(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	late := &lateListener{TCPListener: ln.(*net.TCPListener), dial: func() *peer { return dial(t, ln.Addr().String()) }, conns: make(chan *peer, 1)}
	v := startOn(t, late, handler(ok))
	await("(*lateListener).Accept", "[IO wait]")
	v.s.Shutdown()
	p := <-late.conns
	p.send(get)
	p.answered()
	p.closed()
	v.drained()
}

// A lateListener is a listener to which a client connects at the moment at which the listener's
// deadline has passed twice in a row after the stop.
type lateListener struct {
	*net.TCPListener
	dial   func() *peer
	conns  chan *peer
	passed int
}

func (l *lateListener) Accept() (net.Conn, error) {
	c, err := l.TCPListener.Accept()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if l.passed++; l.passed == 3 { // the stop itself causes the first timeout
			l.conns <- l.dial()
		}
	}
	return c, err
}
