package grpcdrain

import (
	"net"
	"sync"
	"syscall"
	"time"
)

// A listener tracks its open connections, and which of them are in their handshake.
//
// GracefulStop and Stop of a grpc.Server wait for handshakes first, and only then end the other
// connections. So a client that connects and sends nothing would delay both for grpc's connection
// timeout of two minutes, while the other clients continue to send calls. The listener shortens
// such handshakes. It recognizes a handshake by the deadline that grpc sets on a connection at the
// beginning, and removes at the end of the handshake. If a future version of grpc sets no deadline,
// no handshake is recognized and none is shortened.
type listener struct {
	net.Listener
	userTimeout time.Duration

	mu          sync.Mutex
	handshaking map[*conn]bool
	open        map[*conn]bool // connections that are not closed yet
	allClosed   chan struct{}  // closed when no connection is open; nil before notifyAllClosed
	deadline    time.Time      // deadline of all handshakes; zero before limitHandshakes
}

func newListener(ln net.Listener, userTimeout time.Duration) *listener {
	return &listener{Listener: ln, userTimeout: userTimeout, handshaking: map[*conn]bool{}, open: map[*conn]bool{}}
}

func (l *listener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	setUserTimeout(nc, l.userTimeout)
	c := &conn{Conn: nc, listener: l}
	l.mu.Lock()
	l.open[c] = true
	l.mu.Unlock()
	if sc, ok := nc.(syscall.Conn); ok {
		return &sysConn{c, sc}, nil // grpc's channelz needs the syscall.Conn
	}
	return c, nil
}

// limitHandshakes limits all current and future handshakes to the duration d from now.
func (l *listener) limitHandshakes(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = time.Now().Add(d)
	for c := range l.handshaking {
		_ = c.Conn.SetDeadline(l.deadline) // this call fails if the connection is closed, which does no harm
	}
}

// notifyAllClosed returns a channel that is closed when every connection is closed. It must be
// called only once.
func (l *listener) notifyAllClosed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	allClosed := make(chan struct{})
	l.allClosed = allClosed
	l.checkAllClosed()
	return allClosed
}

// checkAllClosed closes the channel allClosed if no connection is open. The caller holds l.mu.
func (l *listener) checkAllClosed() {
	if l.allClosed != nil && len(l.open) == 0 {
		close(l.allClosed)
		l.allClosed = nil
	}
}

type conn struct {
	net.Conn
	listener *listener
}

func (c *conn) SetDeadline(t time.Time) error {
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.IsZero() {
		delete(l.handshaking, c)
	} else {
		l.handshaking[c] = true
		if !l.deadline.IsZero() && l.deadline.Before(t) {
			t = l.deadline
		}
	}
	return c.Conn.SetDeadline(t)
}

func (c *conn) Close() error {
	err := c.Conn.Close()
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.handshaking, c)
	delete(l.open, c)
	l.checkAllClosed()
	return err
}

type sysConn struct {
	*conn
	syscall.Conn
}
