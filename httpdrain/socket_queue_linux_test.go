package httpdrain_test

import (
	"errors"
	"net"
	"os"
	"testing"
)

// If a client connects just when the deadline of the last call of Accept passes, the client is
// served.
func TestServe_ServesConnectionThatArrivesAsLastAcceptTimesOut(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	late := &lateListener{TCPListener: ln.(*net.TCPListener), dial: func() *peer { return dial(t, ln.Addr().String()) }, conns: make(chan *peer, 1)}
	v := startOn(t, late, handler(ok), longLinger)
	await("(*lateListener).Accept", "[IO wait]")
	v.s.Shutdown()
	p := <-late.conns
	for keep := true; keep; { // send several requests, because the drain may begin a little after the stop
		p.send(get)
		keep = p.answered()
	}
	p.closed()
	v.drained()
}

// A lateListener is a listener to which a client connects just after the listener's deadline has
// passed twice in a row after the stop.
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

// If clients connect all the time, the listener is closed only when no client waits in its queue.
func TestServe_ClosesListenerOnlyWhenNoConnectionWaitsForAccept(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	crowd := &crowdedListener{TCPListener: ln.(*net.TCPListener), dial: func() *peer { return dial(t, ln.Addr().String()) }, conns: make(chan *peer, 1)}
	v := startOn(t, crowd, handler(ok), longLinger)
	await("(*crowdedListener).Accept", "[IO wait]")
	v.s.Shutdown()
	p := <-crowd.conns
	for keep := true; keep; { // send several requests, because the drain may begin a little after the stop
		p.send(get)
		keep = p.answered()
	}
	p.closed()
	v.drained()
}

// A crowdedListener is a listener to which so many clients connect after the stop that the limit is
// reached. A client of the test connects just before that.
type crowdedListener struct {
	*net.TCPListener
	dial     func() *peer
	conns    chan *peer
	accepted int
}

const limit = 4096 // the value of maxLateConns in package httpdrain

func (l *crowdedListener) Accept() (net.Conn, error) {
	if l.accepted == 0 || l.accepted > limit {
		c, err := l.TCPListener.Accept()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			l.accepted++ // the stop has ended the call of Accept
		}
		return c, err
	}
	if l.accepted++; l.accepted > limit {
		l.conns <- l.dial()
	}
	server, client := net.Pipe()
	client.Close()
	return server, nil
}
