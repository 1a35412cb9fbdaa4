package httpdrain

import (
	"net"
	"os"
	"sync/atomic"
	"time"
)

// longAgo is a deadline in the past.
var longAgo = time.Unix(1, 0)

// A readDeadline is the read deadline of a connection that code other than the drain has set. It
// saves calls of SetReadDeadline on the socket, each of which costs as much as all that httpdrain
// does for a request.
//
// In each request, net/http lifts the deadline five times, although four times no deadline is set.
// And while a handler runs, a goroutine of the server reads a byte, to notice if the client
// disconnects. The server ends that read with a deadline in the past, and then lifts the deadline.
// So:
//
//   - Lifting a deadline that does not exist is skipped.
//   - A deadline in the past is withheld from the socket while no read is under way. The next read
//     fails without reading. If the handler returns before the goroutine has begun its read, which
//     is frequent, the socket never learns of the deadline.
//
// Both are done on a TCP connection only, and only while no other code can set a deadline on it:
// the listener is of package net, and no hook, Hijack or NetConn has returned the connection.
type readDeadline struct {
	isLifted atomic.Bool // no deadline is set; conn.mu guards the fields below, but not this one

	isExclusive    bool // no other code can set a deadline on the socket
	socketIsLifted bool // the socket has no deadline
	isWithheld     bool // a deadline in the past was requested, but not set on the socket
	reads          int  // number of reads of the socket that are under way
	err            error
}

// setReadDeadline sets a read deadline that code other than the drain has requested. After endReads
// it does nothing. Otherwise the server, which removes its own deadline before it waits for a
// request, would also remove the deadline that endReads has set.
func (c *conn) setReadDeadline(t time.Time) (err error) {
	d := &c.deadline
	if t.IsZero() && d.isLifted.Load() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.readsEnded {
		return nil
	}
	d.isWithheld = d.isExclusive && d.reads == 0 && !t.IsZero() && t.Before(epoch)
	if !d.isWithheld && (!t.IsZero() || !d.socketIsLifted) {
		err = c.raw.SetReadDeadline(t)
		d.socketIsLifted = d.isExclusive && t.IsZero() && err == nil
	}
	d.isLifted.Store(d.socketIsLifted && !d.isWithheld)
	return err
}

// beginRead is called before a read. If a deadline in the past is withheld from the socket, it
// returns the error that a read of the socket would return.
func (c *conn) beginRead() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := &c.deadline; d.isWithheld {
		if d.err == nil {
			d.err = &net.OpError{Op: "read", Net: "tcp", Source: c.raw.LocalAddr(), Addr: c.raw.RemoteAddr(), Err: os.ErrDeadlineExceeded}
		}
		return d.err
	}
	c.deadline.reads++
	return nil
}

// revealDeadline is called before code outside httpdrain can use the socket. If a deadline was
// requested and withheld from the socket (see readDeadline), revealDeadline sets it on the socket.
// From then on, setReadDeadline sets every deadline on the socket. The caller holds c.mu.
func (c *conn) revealDeadline() {
	d := &c.deadline
	if d.isWithheld {
		c.raw.SetReadDeadline(longAgo)
	}
	d.isExclusive, d.socketIsLifted, d.isWithheld = false, false, false
	d.isLifted.Store(false)
}

func (c *conn) lockAndRevealDeadline() {
	c.mu.Lock()
	c.revealDeadline()
	c.mu.Unlock()
}
