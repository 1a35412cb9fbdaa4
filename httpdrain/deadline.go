package httpdrain

import (
	"net"
	"os"
	"sync/atomic"
	"time"
)

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// A deadline is the read deadline of a connection, as everybody but the drain sets it.
//
// The server sets it all the time. In each request it lifts it five times, four times where there is none; and while the handler
// runs, it has a goroutine read a byte, to learn that the client has hung up, which it ends by a deadline that has passed and is
// lifted again. Each of these costs as much as all that we do in a request. So a deadline is not lifted where there is none; and
// as long as nobody reads, the socket is not told of one that has passed: where the handler has returned before that goroutine
// came to its read, it never is.
//
// All that is only where the deadline is ours: on a TCP connection that nobody else can have set one on, be it the listener,
// unless it is package net's, or whoever is shown the connection, by a hook, by Hijack or by NetConn.
type deadline struct {
	none atomic.Bool // there is none; the rest is under conn.mu

	ours  bool
	clear bool // the socket has none
	over  bool // it has passed, and the socket has not been told
	reads int  // of the socket, under way
	err   error
}

// setReadDeadline is for everybody but the drain. While the connection is to end, theirs is ignored: the server lifts its own
// when it begins to wait, which may be just now.
func (c *conn) setReadDeadline(t time.Time) (err error) {
	d := &c.deadline
	if t.IsZero() && d.none.Load() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending {
		return nil
	}
	d.over = d.ours && d.reads == 0 && !t.IsZero() && t.Before(epoch)
	if !d.over && (!t.IsZero() || !d.clear) {
		err = c.raw.SetReadDeadline(t)
		d.clear = d.ours && t.IsZero() && err == nil
	}
	d.none.Store(d.clear && !d.over)
	return err
}

// readBegins is called before a read. It returns what the socket would, had it been told of the deadline.
func (c *conn) readBegins() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := &c.deadline; d.over {
		if d.err == nil {
			d.err = &net.OpError{Op: "read", Net: "tcp", Source: c.raw.LocalAddr(), Addr: c.raw.RemoteAddr(), Err: os.ErrDeadlineExceeded}
		}
		return d.err
	}
	c.deadline.reads++
	return nil
}

// showLocked is called before somebody else gets hold of the connection. mu is held.
func (c *conn) showLocked() {
	d := &c.deadline
	if d.over {
		c.raw.SetReadDeadline(longAgo)
	}
	d.ours, d.clear, d.over = false, false, false
	d.none.Store(false)
}

func (c *conn) show() {
	c.mu.Lock()
	c.showLocked()
	c.mu.Unlock()
}
