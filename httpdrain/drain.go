package httpdrain

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/ctxkey"
)

// A drain tracks the connections of one call of Serve, and ends them after the scope has been
// stopped. Until then it does work only when a connection is accepted, hijacked or closed, for
// event streams of [Debug], and once a second while there are hijacked connections, whose sockets
// it checks. It does none for any other request.
type drain struct {
	options
	server  *server
	secure  bool // the server uses TLS
	traced  bool // the scope is traced
	scope   *ctxshutdown.Swansong
	hijacks *ctxshutdown.Swansong // child scope whose guards are the hijacked connections, so that reports show them separately
	work    context.Context       // scope.Work(), which Force cancels

	lameDuck atomic.Pointer[lameDuck] // nil until the lame duck phase of the process begins
	draining atomic.Bool
	began    time.Time // when the drain began; set before the field draining is

	mu       sync.Mutex
	conns    map[*conn]int // for each connection, how often it was added minus how often it was removed, see move
	count    [roleGone]int // number of connections in each role; a role says what the drain waits for on a connection
	accepted bool          // the last connection has been accepted: the listener returns no more
	quiet    chan struct{} // closed when only hijacked connections and event streams of the Debug page are left
	empty    chan struct{} // closed when only event streams of the Debug page are left
	silent   []Cut         // connections that the drain closed in the middle of a header
	panicErr *PanicError   // the first panic of a function of the user

	hijacked map[*conn]syscall.RawConn // sockets of hijacked connections to be checked, guarded by mu
	watching sync.WaitGroup            // counts the goroutine that checks the hijacked connections
	begins   chan struct{}             // closed when the drain begins
	ended    chan struct{}             // closed when Serve is about to return
}

// add starts to track the accepted connection nc, and returns the connection that the server is to
// use instead. If isExclusive is true, no other code can have a reference to nc, because the
// listener is of package net.
func (d *drain) add(nc net.Conn, isExclusive bool) net.Conn {
	w, c := newConn(nc)
	_, tcp := w.(*tcpConn)
	c.deadline.isExclusive = tcp && isExclusive && d.server.connState == nil && d.server.connContext == nil
	c.raw, c.drain, c.scope, c.work = nc, d, d.scope, d.work
	c.state.linger, c.state.inHandshake, c.turn = d.linger, d.secure, rand.Float64()
	if d.pace > 0 {
		describer := &ctxkey.WorkDescriber{Describe: describePaced}
		c.scope, c.pacing.stop = ctxshutdown.WithCancel(context.WithValue(d.work, ctxkey.Describer{}, describer))
		describer.Scope = c.scope
		c.work = c.scope.Work()
	}
	d.mu.Lock()
	d.conns[c]++
	d.count[roleServed]++
	d.mu.Unlock()
	return w
}

// move counts the connection c, whose role has changed from oldRole to newRole. The caller holds
// c.mu, unless newRole is roleGone.
//
// On HTTP/2, a handler may begin to run after its connection was closed. Then a connection that was
// gone is served again. The call of move for that may overtake the call for the closing, because
// the latter is made without c.mu. So d.conns holds a number for each connection: how often it was
// added, minus how often it was removed.
func (d *drain) move(c *conn, oldRole, newRole role) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if oldRole == roleGone {
		d.conns[c]++
	} else {
		d.count[oldRole]--
	}
	if newRole == roleGone {
		if d.conns[c]--; d.conns[c] == 0 {
			delete(d.conns, c)
		}
	} else {
		d.count[newRole]++
	}
	d.closeChannels()
}

// recordSilent records a connection that the drain closed in the middle of a header. It must be
// called before the role of the connection becomes roleGone. The caller holds the mutex of the
// connection.
func (d *drain) recordSilent(c Cut) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.silent = append(d.silent, c)
}

// closeChannels closes the channels quiet and empty if their conditions hold. The caller holds
// d.mu.
func (d *drain) closeChannels() {
	if !d.accepted || d.count[roleServed] > 0 {
		return
	}
	closeOnce(d.quiet)
	if d.count[roleHijacked] == 0 {
		closeOnce(d.empty)
	}
}

func closeOnce(ch chan struct{}) {
	if !isClosed(ch) {
		close(ch)
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// begin starts to end the connections, and returns their number. It is called after the last
// connection has been accepted.
func (d *drain) begin() (n int) {
	d.began = time.Now()
	d.draining.Store(true)
	close(d.begins)
	d.mu.Lock()
	d.accepted = true
	d.closeChannels()
	d.mu.Unlock()
	conns := d.snapshot()
	groupByClient(conns)
	for _, c := range conns {
		c.beginDrain()
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

// refusesRequests reports whether a request that arrives now is refused, see WithRetryAfter.
func (d *drain) refusesRequests() bool {
	return d.retryAfter > 0 && d.draining.Load() && time.Since(d.began) >= d.linger
}
