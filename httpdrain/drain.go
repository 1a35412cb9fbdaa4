package httpdrain

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// A standing is what a connection is to the drain.
type standing int

const (
	served  standing = iota // in the hands of the server
	taken                   // hijacked, waited for
	watched                 // all its requests only watch, and are not waited for
	gone
)

// A drain knows the connections of one listener, and ends them. Until it begins, all it does is count: when connections
// come and go, and not for each request.
type drain struct {
	options
	server  *server
	secure  bool // TLS
	scope   *ctxshutdown.Swansong
	hijacks *ctxshutdown.Swansong // counts hijacked connections, so that reports tell them from requests
	work    context.Context       // hard tier of scope

	draining atomic.Bool
	began    time.Time // set before draining is

	mu       sync.Mutex
	conns    map[*conn]int // how often each is here, see move
	standing [gone]int     // how many of them
	accepted bool          // no more will come
	quiet    chan struct{} // closed when the server has nothing left to serve
	empty    chan struct{} // closed when there is nobody left to wait for
	silent   []Cut         // who has been closed in the middle of a header

	failed *PanicError // the first; of the goroutine of Serve
}

// add takes a connection on; own is whether nobody else can have got hold of it.
func (d *drain) add(nc net.Conn, own bool) net.Conn {
	w, c := newConn(nc)
	_, tcp := w.(*tcpConn)
	c.deadline.ours = tcp && own && d.server.connState == nil && d.server.connContext == nil
	c.raw, c.drain, c.scope, c.work = nc, d, d.scope, d.work
	if d.secure {
		c.shaking = new(handshake)
	}
	if d.pace > 0 {
		c.scope, c.stop = ctxshutdown.WithCancel(d.work)
		c.work = c.scope.Work()
	}
	d.mu.Lock()
	d.conns[c]++
	d.standing[served]++
	d.mu.Unlock()
	return w
}

// move is called with c's mu held, or when c is gone. One that is gone comes back with a handler that HTTP/2 has started before
// the connection ended, and that begins only now; and it may do so before it is heard here that it was gone, so that counts.
func (d *drain) move(c *conn, was, is standing) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if was == gone {
		d.conns[c]++
	} else {
		d.standing[was]--
	}
	if is == gone {
		if d.conns[c]--; d.conns[c] == 0 {
			delete(d.conns, c)
		}
	} else {
		d.standing[is]++
	}
	d.look()
}

// fellSilent is called with the conn's mu held, and before the end of the connection is heard of.
func (d *drain) fellSilent(c Cut) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.silent = append(d.silent, c)
}

// look tells whoever waits for the end of the drain, or of its better part. mu is held.
func (d *drain) look() {
	if !d.accepted || d.standing[served] > 0 {
		return
	}
	shut(d.quiet)
	if d.standing[taken] == 0 {
		shut(d.empty)
	}
}

func shut(ch chan struct{}) {
	if !closed(ch) {
		close(ch)
	}
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// begin ends the connections, each in its time. No more of them come: they do until the listener is closed, because each
// one that ends may be followed by another.
func (d *drain) begin() (n int) {
	d.began = time.Now()
	d.draining.Store(true)
	d.mu.Lock()
	d.accepted = true
	d.look()
	d.mu.Unlock()
	conns := d.snapshot()
	for _, c := range conns {
		c.mu.Lock()
		c.owe()
		c.plan()
		c.mu.Unlock()
	}
	return len(conns)
}

func (d *drain) snapshot() []*conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	conns := make([]*conn, 0, len(d.conns))
	for c := range d.conns {
		conns = append(conns, c)
	}
	return conns
}

// late reports whether a request is to be refused.
func (d *drain) late() bool {
	return d.retryAfter > 0 && d.draining.Load() && time.Since(d.began) >= d.linger
}
