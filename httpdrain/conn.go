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
)

// headerLimit is how long a connection may be quiet in the middle of a request's header, while the server drains. Without it,
// one client that sends half a line would keep the server until the hard tier. One that keeps sending does: it is not quiet,
// and nobody but the hard tier can tell it from a request that still arrives.
const headerLimit = 2 * time.Second

// steps is in how many pieces a connection is waited for. A process that is kept from running for longer than the linger
// finds all its timers passed when it comes back, before it has seen what arrived meanwhile; and where the machine is that
// busy, so may be the client. In steps, only the time counts in which the process could run.
const steps = 5

// A conn is a connection that a listener accepted. It knows whether the client is owed an answer. ConnState alone does not
// tell: for the server, a connection is idle until the whole header of the next request has arrived.
//
//	         first bytes             header complete               Hijack            Close
//	waiting ────────────▶ begun ───────────────────────▶ serving ─────────▶ hijacked ──────▶ gone
//	 ▲  │                   │                             │    │                              ▲
//	 │  └───────────────────┴── the server closes it ─────┼────┴──────────────────────────────┘
//	 └────────────────────────── response written ────────┘
//
// What the drain does about each:
//
//	waiting   closed after the linger, on HTTP/2 after a GOAWAY, which takes another
//	begun     the same after headerLimit, which starts anew with all that arrives
//	serving   the response says that it is the last one, if its header is not written yet; a guard stands for it where its
//	          handler has returned
//	hijacked  nothing; the handler is told by its scope
//
// On HTTP/1 a request has begun when bytes were read that nothing has been written after. That holds under TLS too, where
// the bytes themselves say nothing, once the handshake is over. On HTTP/2, frames come and go that are no request, and a
// GOAWAY makes sure that what it does not cover is sent again; so only the number of streams counts there.
type conn struct {
	raw   net.Conn // what the listener accepted
	drain *drain
	scope *ctxshutdown.Swansong // the server's, or under pacing the connection's own
	stop  context.CancelFunc    // tells the connection's own to stop; else nil
	work  context.Context       // hard tier of scope

	mu       sync.Mutex
	serving  bool       // the server has read a header, and not gone back to waiting
	begun    bool       // bytes were read after the last write
	since    time.Time  // the first of them, or the first plan made after it
	shaking  *handshake // until the first request
	h2       bool
	greeted  bool // h2, and the client's preface has come
	hijacked bool
	closed   bool // by whoever is in charge of that: the server, or the hijacker
	active   int  // requests whose handler is running
	watching int  // of these, the ones that the drain does not wait for
	standing standing
	requests *request // the active ones; where there is none, the last one, until it is answered
	deadline deadline
	released bool               // its scope has been told to stop
	keeps    *ctxshutdown.Guard // of scope, from then on, so that Work does not end with the stop
	holds    *ctxshutdown.Guard // of the hijacked ones, until Close
	owes     *ctxshutdown.Guard // of scope, in the drain, while the server is serving and no handler is running

	timer  *time.Timer
	due    time.Time // when timer fires; zero: never
	step   time.Duration
	steps  int       // until there is something to do
	ending bool      // the read deadline has passed, by us
	silent time.Time // since, where that was in the middle of a header, and no request has come of it
	goAway func()    // sends a GOAWAY on this connection; nil where nobody knows how
	told   bool      // a GOAWAY is asked for, or on its way with a response
	wrote  bool      // something was written since it was asked for

	writing int           // writes under way, on HTTP/2 where somebody watches
	out     int64         // bytes that they have written
	ended   chan struct{} // closed when one ends; nil where nobody waits for that
}

// newConn returns nc with a conn in between, keeping what net/http and io.Copy ask a connection for.
func newConn(nc net.Conn) (net.Conn, *conn) {
	switch nc := nc.(type) {
	case *net.TCPConn:
		w := &tcpConn{TCPConn: nc}
		return w, &w.conn
	case interface{ ConnectionState() tls.ConnectionState }:
		w := &secureConn{anyConn{Conn: nc.(net.Conn)}}
		return w, &w.conn
	}
	w := &anyConn{Conn: nc}
	return w, &w.conn
}

// tracked finds the conn in what the server's hooks are given: a wrapper, or the TLS connection around one.
func tracked(nc net.Conn) *conn {
	if tc, ok := nc.(*tls.Conn); ok {
		nc = tc.NetConn()
	}
	if w, ok := nc.(*tcpConn); ok { // most are, and this is asked several times in a request
		return &w.conn
	}
	if w, ok := nc.(interface{ tracked() *conn }); ok {
		return w.tracked()
	}
	return nil
}

func (c *conn) tracked() *conn { return c }

func (c *conn) read(b []byte) (int, error) {
	if err := c.readBegins(); err != nil {
		return 0, err
	}
	n, err := c.raw.Read(b)
	for looks := 0; n == 0 && c.looksAgain(err, looks); looks++ {
		n, err = c.raw.Read(b)
	}
	c.mu.Lock()
	c.deadline.reads--
	if n > 0 {
		c.came(b[:n])
	}
	c.mu.Unlock()
	return n, err
}

// looksAgain reports whether a read that was ended is to be done again, because the socket has not been looked at: on a busy
// machine the request may have been in it for a while.
func (c *conn) looksAgain(err error, looks int) bool {
	if !c.drain.draining.Load() {
		return false // a read of the server's own ends in each request
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ending || !errors.Is(err, os.ErrDeadlineExceeded) {
		return false // in this order: the server ends a read of its own after each request
	}
	something, known := look(c.raw)
	switch {
	case !known || c.greeted: // on HTTP/2, something need not be a request
		c.raw.SetReadDeadline(time.Now().Add(lull))
		return looks < 2 // as in Accept
	case something:
		c.stay()
		c.plan()
	}
	return something
}

// came notes that bytes have been read. mu is held.
func (c *conn) came(b []byte) {
	if c.greeted {
		return
	}
	c.silent = time.Time{}
	if !c.begun {
		c.begun = c.shaking == nil || c.shaking.saw(b)
	}
	if !c.serving && c.drain.draining.Load() {
		c.stay()
		c.plan()
	}
}

// writes notes that bytes are about to be written. Before and not after, when the answer to them may have been read. It counts
// the write, and says so, where leaveWhen may want to know of its end.
func (c *conn) writes() (counted bool) {
	c.mu.Lock()
	if c.shaking == nil && c.h2 == c.greeted { // else they are the server's settings, which answer nothing
		c.begun = false
		c.since = time.Time{}
	}
	if !c.wrote {
		c.wrote = true
		if c.h2 && c.drain.draining.Load() {
			c.plan() // that was the GOAWAY
		}
	}
	if counted = c.h2 && c.watching > 0; counted {
		c.writing++
	}
	c.mu.Unlock()
	return counted
}

// became is told what the server says of the connection.
func (c *conn) became(state http.ConnState) {
	c.mu.Lock()
	switch state {
	case http.StateActive:
		c.serving = true
		c.greeted = c.h2
		c.shaking = nil
		c.stay()
	case http.StateIdle:
		c.serving = false
		c.forget()
	case http.StateHijacked:
		c.hijacked = true
		c.holds = c.drain.hijacks.Guard()
		c.showLocked()
		c.stay()
	case http.StateClosed:
		c.closed = true
		c.forget()
		if !c.silent.IsZero() {
			c.drain.fellSilent(c.unnamed(c.silent, time.Since(epoch)))
		}
	}
	if c.drain.draining.Load() {
		c.owe()
		c.plan()
	}
	if state == http.StateActive || state == http.StateIdle {
		c.mu.Unlock()
		return
	}
	c.account()
}

// account tells the drain what the connection is to it now, and unlocks mu.
func (c *conn) account() {
	is := served
	switch {
	case c.closed && c.active == 0: // a handler of HTTP/2 may outlive the connection
		is = gone
	case c.watching > 0 && c.active == c.watching:
		is = watched
	case c.hijacked:
		is = taken
	}
	was := c.standing
	c.standing = is
	if is != was && is != gone {
		c.drain.move(c, was, is) // not after mu, or the drain might see two moves in the wrong order
	}
	c.mu.Unlock()
	if is != was && is == gone {
		c.dispose()
		c.drain.move(c, was, is)
	}
}

// plan sets the timer to when something is to be done unless something happens. The server drains, and mu is held.
func (c *conn) plan() {
	var wait time.Duration
	switch {
	case c.serving || c.hijacked || c.closed:
		c.due = time.Time{}
		if c.timer != nil {
			c.timer.Stop()
		}
		return
	case c.greeted || !c.begun && !c.shaking.underWay():
		wait = c.drain.linger
	default:
		if c.since.IsZero() {
			c.since = time.Now()
		}
		wait = max(headerLimit, c.drain.linger)
	}
	c.steps, c.step = steps, wait/steps
	c.next()
}

// next sets the timer to the next of the steps.
func (c *conn) next() {
	c.due = time.Now().Add(c.step)
	if c.timer == nil {
		c.timer = time.AfterFunc(c.step, c.expire)
	} else {
		c.timer.Reset(c.step)
	}
}

// expire does what was planned.
func (c *conn) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.due.IsZero() || time.Now().Before(c.due):
		// It was planned anew while the timer fired.
	case c.steps > 1:
		c.steps--
		c.next()
	case c.greeted && !c.told && c.goAway != nil: // to a client that has not greeted, the server would say nothing, and wait
		c.told, c.wrote = true, false
		c.due = time.Time{} // until it is written
		c.goAway()
	default:
		if c.begun && !c.h2 {
			c.silent = c.since
		}
		c.end()
	}
}

// end has the server end the connection, unless there is a request in the socket. Not Close: a request that the server has
// just read would be carried out and never answered. This ends the server's wait for one, and it closes the connection.
func (c *conn) end() {
	c.ending, c.deadline.over = true, false
	if c.raw.SetReadDeadline(longAgo) != nil {
		c.raw.Close()
	}
	// Once more, should somebody who took us for running set a deadline only now.
	c.step = endAgain
	c.next()
}

const endAgain = 100 * time.Millisecond

// stay takes back end: there is a request after all. The server sets deadlines of its own when it has read the header, and
// until then there is the headerLimit.
func (c *conn) stay() {
	if c.ending {
		c.ending = false
		c.raw.SetReadDeadline(time.Time{})
	}
}

func (c *conn) close() error {
	err := c.raw.Close()
	c.mu.Lock()
	if !c.hijacked || c.closed {
		c.mu.Unlock()
		return err // the server says StateClosed when it is through
	}
	c.unhold()
	c.account()
	return err
}

// unhold ends a hijacked connection for the drain. mu is held.
func (c *conn) unhold() {
	c.closed = true
	c.holds.Release()
}

// sever closes the connection for good. Not as TLS does, which waits for the client to read.
func (c *conn) sever() {
	c.raw.Close()
	c.mu.Lock()
	if c.hijacked && !c.closed {
		c.unhold() // whoever has it may never look at it again
	}
	c.account()
}

// speaksHTTP2 is told before the first frame is read.
func (c *conn) speaksHTTP2(goAway func()) {
	c.mu.Lock()
	c.h2, c.goAway, c.shaking = true, goAway, nil
	c.mu.Unlock()
}

// busy reports whether the connection is in the middle of something that may last.
func (c *conn) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.active > 0 || c.hijacked && !c.closed
}

// release tells the connection's own scope to stop, which exists under pacing only.
func (c *conn) release() {
	if c.stop == nil {
		return
	}
	c.mu.Lock()
	first := !c.released && c.standing != gone
	c.released = true
	if first {
		c.keeps = c.scope.Guard()
	}
	c.mu.Unlock()
	c.stop()
}

// dispose is called when nothing is left of the connection, and again if it has come back since.
func (c *conn) dispose() {
	c.mu.Lock()
	c.due = time.Time{}
	if c.timer != nil {
		c.timer.Stop()
	}
	c.released = true
	keeps := c.keeps
	c.keeps = nil
	c.mu.Unlock()
	keeps.Release()
	if c.stop != nil {
		c.stop()
	}
}
