package httpdrain

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/httpdrain/internal/socket"
)

// A conn is a connection that the server's listener accepted. It passes each event, such as a read,
// a write or the start of a handler, to its connState, and carries out the actions that the
// connState returns.
type conn struct {
	raw   net.Conn // the connection that the listener accepted
	drain *drain
	scope *ctxshutdown.Swansong // scope of the server or, with WithPacing, of this connection
	work  context.Context       // scope.Work(), which Force cancels
	turn  float64               // random, from 0 to 1: when the turn of the connection comes, see lameDuck.turn
	base  context.Context       // the context of the connection; the user's BaseContext and ConnContext have derived it

	mu            sync.Mutex
	state         connState
	lastStart     time.Duration // when the latest request was read, as the time since epoch
	client        *client       // the client of the connection; nil before the drain
	interval      time.Duration // the usual time between the starts of two requests, see beginHandler; 0 before the second request
	requests      *request      // requests whose handlers run; if no handler runs, the last request until its response is written
	abandoned     *request      // HTTP/2 requests whose handlers returned after Force, for the CutError; kept until all requests are answered
	deadline      readDeadline
	timer         *time.Timer        // the timer of the connState; nil until the drain starts it
	http2         *http2Conn         // the HTTP/2 connection, if httpdrain serves it; nil for HTTP/1, and for HTTP/2 that the user has configured
	http2Server   *http.Server       // the additional http.Server for this connection alone, see http2.go; nil if http2 is nil
	hijackGuard   *ctxshutdown.Guard // a guard that is held until the hijacked connection is closed
	responseGuard *ctxshutdown.Guard // a guard that is held while the server writes a response whose handler has returned
	writes        writeProgress
	pacing        connPacing
}

// newConn wraps nc in a connection that has those methods of nc that net/http and io.Copy use.
func newConn(nc net.Conn) (net.Conn, *conn) {
	switch nc := nc.(type) {
	case *net.TCPConn:
		w := &tcpConn{TCPConn: nc}
		return w, &w.conn
	case *tls.Conn:
		w := &tlsConn{anyConn: anyConn{Conn: nc}, tls: nc}
		return w, &w.conn
	case interface{ ConnectionState() tls.ConnectionState }:
		w := &secureConn{anyConn{Conn: nc.(net.Conn)}}
		return w, &w.conn
	}
	w := &anyConn{Conn: nc}
	return w, &w.conn
}

// connOf returns the conn of nc, a connection that net/http passed to a hook of the server: either
// one that newConn returned, or the TLS connection around one. It returns nil for any other
// connection.
func connOf(nc net.Conn) *conn {
	if tc, ok := nc.(*tls.Conn); ok {
		nc = tc.NetConn()
	}
	if w, ok := nc.(*tcpConn); ok { // fast path: each request calls connOf several times
		return &w.conn
	}
	if w, ok := nc.(interface{ itself() *conn }); ok {
		return w.itself()
	}
	return nil
}

func (c *conn) itself() *conn { return c }

// step passes e to the state machine and carries out the actions that it returns. The caller holds
// c.mu. For an event that can change the role of the connection, call stepUnlock instead.
func (c *conn) step(e connEvent) {
	if c.state.draining || e.kind == eventDrain {
		e.now = time.Now()
	}
	if todo := c.state.step(e); todo != 0 {
		c.do(todo)
	}
}

// beginDrain tells the state machine that the drain has begun.
func (c *conn) beginDrain() {
	c.mu.Lock()
	c.state.linger = c.linger(c.drain.linger, c.drain.maxLinger)
	c.stepUnlock(connEvent{kind: eventDrain})
}

func (c *conn) isHTTP2() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.http2
}

// stepUnlock is like step, but it also reports a change of the connection's role to the drain. The
// caller holds c.mu; stepUnlock unlocks it.
func (c *conn) stepUnlock(e connEvent) {
	before := c.state.role
	c.step(e)
	after := c.state.role
	if after != before && after != roleGone {
		// Call move before unlocking, so that the drain sees the roles of a connection in their
		// order.
		c.drain.move(c, before, after)
	}
	c.mu.Unlock()
	if after != before && after == roleGone {
		c.endPacing()
		c.drain.move(c, before, after)
	}
}

// record locks c.mu and calls stepUnlock, which unlocks it. The caller must not hold c.mu.
func (c *conn) record(e connEvent) {
	c.mu.Lock()
	c.stepUnlock(e)
}

// do carries out the actions in the set todo. The caller holds c.mu.
func (c *conn) do(todo connActions) {
	has := func(a connActions) bool { return todo&a != 0 }
	if has(holdHijacked) {
		c.hijackGuard = guardNamed(c.drain.hijacks, c.latestRequest())
	}
	if has(releaseHijacked) {
		c.hijackGuard.Release()
	}
	if has(holdResponse) {
		c.responseGuard = guardNamed(c.scope, c.latestRequest())
	}
	if has(releaseResponse) {
		c.responseGuard.Release()
		c.responseGuard = nil
	}
	if has(revealDeadline) {
		c.revealDeadline()
	}
	if has(resumeReads) {
		// Lift the deadline by which endReads ended the server's read. The deadline that the server
		// had set before need not be restored: until the header is complete, headerTimeout limits
		// the wait, and after that the server sets a new deadline.
		c.raw.SetReadDeadline(time.Time{})
	}
	if has(endReads) {
		c.endReads()
	}
	if has(reportSilent) {
		c.drain.recordSilent(c.unknownRequest(c.state.incompleteSince, time.Since(epoch)))
	}
	if has(announceGoAway) {
		go c.http2.announce() // on a goroutine, because announce blocks while the client does not read
	}
	if has(sendGoAway) {
		c.http2Server.Shutdown(cancelled)
	}
	if has(setTimer) {
		if c.timer == nil {
			c.timer = time.AfterFunc(c.state.interval, c.onTimer)
		} else {
			c.timer.Reset(c.state.interval)
		}
	}
	if has(stopTimer) && c.timer != nil {
		c.timer.Stop()
	}
}

// endReads makes the server close the connection if no request is in the socket. It does not close
// the socket itself: the server may have read a request a moment ago, and its handler could then
// not send the response. Instead it sets a read deadline in the past. Then either the server's read
// fails, and the server closes the connection, or mustReadAgain finds that a request is there.
func (c *conn) endReads() {
	c.deadline.isWithheld = false
	if c.raw.SetReadDeadline(longAgo) != nil {
		c.raw.Close()
	}
}

func (c *conn) onTimer() {
	c.mu.Lock()
	c.stepUnlock(connEvent{kind: eventTimer, keep: c.clientWait()})
}

// onConnState handles a state of the connection that the http.Server has reported.
func (c *conn) onConnState(state http.ConnState) {
	c.mu.Lock()
	e := connEvent{kind: eventNew}
	switch state {
	case http.StateActive:
		e.kind = eventActive
	case http.StateIdle:
		e.kind = eventIdle
		c.forgetAnswered()
	case http.StateHijacked:
		e.kind = eventHijack
	case http.StateClosed:
		e.kind = eventClose
		c.forgetAnswered()
	}
	c.stepUnlock(e)
}

// setHTTP2 records that the connection will speak HTTP/2. It is called before the server reads the
// first frame. h wraps the connection, and srv is the additional http.Server that serves this
// connection and no other. Both are nil if the user has configured HTTP/2 and so httpdrain does not
// serve the connection.
func (c *conn) setHTTP2(h *http2Conn, srv *http.Server) {
	c.mu.Lock()
	c.http2, c.http2Server = h, srv
	c.stepUnlock(connEvent{kind: eventHTTP2, canSendGoAway: h != nil})
}

func (c *conn) read(b []byte) (int, error) {
	if err := c.beginRead(); err != nil {
		return 0, err
	}
	n, err := c.raw.Read(b)
	for attempts := 0; n == 0 && c.mustReadAgain(err, attempts); attempts++ {
		n, err = c.raw.Read(b)
	}
	c.mu.Lock()
	c.deadline.reads--
	if n == 0 {
		c.mu.Unlock()
		return n, err
	}
	c.stepUnlock(connEvent{kind: eventRead, data: b[:n]})
	return n, err
}

// mustReadAgain reports whether read must repeat a read that endReads made fail. A read whose
// deadline has passed fails without looking for data in the socket, and on a busy machine the data
// may have been there for a while. attempts is the number of repetitions so far.
func (c *conn) mustReadAgain(err error, attempts int) bool {
	if !c.drain.draining.Load() {
		// endReads is called only during the drain. Before the drain, the server itself ends a read
		// for each request, by a deadline, so return without locking.
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.state.readsEnded || !errors.Is(err, os.ErrDeadlineExceeded) {
		return false // errors.Is comes last because it is slow
	}
	unread, known := socket.HasUnread(c.raw)
	switch {
	case !known || c.state.preface: // HTTP/2: unread data need not be a request
		// Read for the time lull, to see whether data arrives. Do this twice, because on a busy
		// machine a deadline may pass before the read has begun.
		c.raw.SetReadDeadline(time.Now().Add(lull))
		return attempts < 2
	case unread:
		c.step(connEvent{kind: eventUnread})
	}
	return unread
}

// close closes the socket. If the connection is hijacked, the drain need not wait for it any more.
func (c *conn) close() error {
	err := c.raw.Close()
	c.mu.Lock()
	c.stepUnlock(connEvent{kind: eventHijackerClose}) // the state machine ignores the event unless the connection is hijacked
	return err
}

// roundTrips is the least number of round trips for which the drain keeps a quiet connection: one
// for a request that is on its way, and three more because the time of a round trip varies.
const roundTrips = 4

// linger returns how long the drain keeps the connection if it is quiet: at least the duration
// minimum, at most the duration maximum. If a client sends one request after another, and its next
// request is due before maximum has passed, the drain waits for that request, whose response says
// Connection: close. The caller holds c.mu.
func (c *conn) linger(minimum, maximum time.Duration) time.Duration {
	wait := minimum
	if rtt, ok := socket.RoundTrip(c.raw); ok {
		wait = max(wait, roundTrips*rtt)
	}
	if next := c.lastStart + c.interval - time.Since(epoch); c.interval > 0 && next <= maximum {
		wait = max(wait, next+c.interval) // wait one interval more, because requests do not come at exact times
	}
	return min(wait, maximum)
}
