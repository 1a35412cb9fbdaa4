package httpdrain

import (
	"sync"
	"sync/atomic"
	"time"
)

// hangUpLatency is how much later a handler may learn that its client has hung up.
const hangUpLatency = 10 * time.Millisecond

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// A deadline is the read deadline of a connection, as everybody but the drain sets it.
//
// The server sets it all the time. In each request it lifts it five times, four times where there is none; and while the handler
// runs, it has a goroutine read a byte, to learn that the client has hung up, which it ends by a deadline that has passed and is
// lifted again. A look at the socket that finds nothing, and two calls of the poller: together more than all that we do in a
// request. So a deadline is not lifted where there is none, and that read waits for hangUpLatency before it looks. Where the
// handler has returned by then, the socket is never asked, nor told of the deadline.
//
// All that is only where the deadline is ours: on a TCP connection that nobody else can have set one on, be it the listener,
// unless it is package net's, or whoever is shown the connection, by a hook, by Hijack or by NetConn.
type deadline struct {
	none atomic.Bool // there is none; the rest is under conn.mu

	ours  bool
	clear bool       // the socket has none
	over  bool       // it has passed, and the socket has not been told
	reads int        // of the socket, under way
	waits bool       // a read has not begun yet
	ends  *sync.Cond // some of this has changed
	late  *time.Timer
}

// setReadDeadline is for everybody but the drain. While the connection is to end, theirs is ignored: the server lifts its own
// when it begins to wait, which may be just now.
func (c *conn) setReadDeadline(t time.Time) error {
	d := &c.deadline
	if t.IsZero() && d.none.Load() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending {
		return nil
	}
	var err error
	if d.over = d.ours && d.reads == 0 && !t.IsZero() && t.Before(epoch); d.over {
		d.wake()
	} else if !t.IsZero() || !d.clear {
		err = c.raw.SetReadDeadline(t)
		d.clear = d.ours && t.IsZero() && err == nil
	}
	d.none.Store(d.clear && !d.over)
	return err
}

// readBegins is called before a read of n bytes. It reports whether the socket is to be asked; if not, the deadline has passed.
func (c *conn) readBegins(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := &c.deadline
	if n == 1 && d.ours && c.serving && !c.h2 {
		if d.wait(&c.mu); d.over {
			return false
		}
	}
	c.tell()
	d.reads++
	return true
}

// wait returns after hangUpLatency, or when the deadline has passed or is not ours any more. mu is held, but not meanwhile.
func (d *deadline) wait(mu *sync.Mutex) {
	if d.over {
		return
	}
	d.waits = true
	if d.late == nil {
		d.ends = sync.NewCond(mu)
		d.late = time.AfterFunc(hangUpLatency, func() {
			mu.Lock()
			defer mu.Unlock()
			d.wake()
		})
	} else {
		d.late.Reset(hangUpLatency)
	}
	for d.waits {
		d.ends.Wait()
	}
	d.late.Stop()
}

func (d *deadline) wake() {
	if d.waits {
		d.waits = false
		d.ends.Broadcast()
	}
}

// tell has the socket know of a deadline that has passed. mu is held.
func (c *conn) tell() {
	if d := &c.deadline; d.over {
		d.over, d.clear = false, false
		c.raw.SetReadDeadline(longAgo)
	}
}

// shown is called before somebody else gets hold of the connection. mu is held.
func (c *conn) shown() {
	c.tell()
	d := &c.deadline
	d.ours, d.clear = false, false
	d.none.Store(false)
}

func (c *conn) show() {
	c.mu.Lock()
	c.shown()
	c.mu.Unlock()
}
