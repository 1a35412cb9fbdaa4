package grpcdrain

import (
	"net"
	"sync"
	"syscall"
	"time"
)

// A listener knows the connections whose handshake is not over.
//
// GracefulStop, and Stop as well, waits for those first, and only then tells the others to go away. A client that
// connects and says nothing holds up both for grpc's connection timeout, two minutes, while everybody else goes on
// sending calls. grpc puts a deadline on a connection for its handshake and takes it away afterwards; so a deadline is
// what tells such a connection, and shortening it is the cure. Were grpc to do otherwise one day, no deadline would be
// seen here, and nothing happen to anybody's connection.
type listener struct {
	net.Listener
	userTimeout time.Duration

	mu          sync.Mutex
	handshaking map[*conn]bool
	open        map[*conn]bool // not closed yet
	closed      chan struct{}  // closed when none of these is left; nil where nobody waits for that
	cut         time.Time      // when the last handshake has to be over, from the stop on
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
	c := &conn{Conn: nc, in: l}
	l.mu.Lock()
	l.open[c] = true
	l.mu.Unlock()
	if sc, ok := nc.(syscall.Conn); ok {
		return &sysConn{c, sc}, nil // channelz asks for it
	}
	return c, nil
}

// hurry gives the handshakes, those under way and those to come, d to end.
func (l *listener) hurry(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = time.Now().Add(d)
	for c := range l.handshaking {
		_ = c.Conn.SetDeadline(l.cut) // fails where it is closed
	}
}

// none returns what is closed when every connection is. It is called once.
func (l *listener) none() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	none := make(chan struct{})
	l.closed = none
	l.look()
	return none
}

// look tells who waits that no connection is left; mu is held.
func (l *listener) look() {
	if l.closed != nil && len(l.open) == 0 {
		close(l.closed)
		l.closed = nil
	}
}

type conn struct {
	net.Conn
	in *listener
}

func (c *conn) SetDeadline(t time.Time) error {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	if t.IsZero() {
		delete(c.in.handshaking, c)
	} else {
		c.in.handshaking[c] = true
		if !c.in.cut.IsZero() && c.in.cut.Before(t) {
			t = c.in.cut
		}
	}
	return c.Conn.SetDeadline(t)
}

func (c *conn) Close() error {
	err := c.Conn.Close()
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	delete(c.in.handshaking, c)
	delete(c.in.open, c)
	c.in.look()
	return err
}

type sysConn struct {
	*conn
	syscall.Conn
}
