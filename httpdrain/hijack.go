package httpdrain

import (
	"context"
	"crypto/tls"
	"net"
	"runtime/pprof"
	"slices"
	"syscall"
	"time"
)

// Hijack returns the connection that the listener accepted, because handlers and libraries assert
// that it is a *net.TCPConn, and because io.Copy between two of them does not copy the bytes
// through the process. Such a connection cannot notify the drain when it is closed. So the drain
// checks from time to time which sockets of hijacked connections have been closed. If it cannot
// check a socket, Hijack returns the conn itself, whose Close notifies the drain.

const (
	// checkInterval is how often the sockets of hijacked connections are checked before the drain,
	// when no code waits for their end.
	checkInterval = time.Second
	// During the drain, the goroutine waits between two checks for a fiftieth of the time that the
	// drain has lasted, but not less or more than these bounds. So the checks do not make a short
	// drain noticeably longer, and a drain that lasts for hours uses little processor time.
	minCheckInterval = time.Millisecond
	maxCheckInterval = 50 * time.Millisecond
	// After each check of the sockets, the goroutine waits at least checkPause times as long as the
	// check took. So if there are very many hijacked connections, the sockets are checked less
	// often.
	checkPause = 10
)

// handOver returns the connection that Hijack returns instead of nc, which the server returned.
func (c *conn) handOver(nc net.Conn) net.Conn {
	if _, ok := nc.(interface{ itself() *conn }); !ok {
		return nc // nc is a *tls.Conn: its Close closes the conn inside it, which notifies the drain
	}
	socket := c.raw
	if tc, ok := socket.(*tls.Conn); ok {
		socket = tc.NetConn()
	}
	switch socket.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		return nc // Close of another type might leave the socket open, so use nc, whose Close notifies the drain
	}
	raw, err := socket.(syscall.Conn).SyscallConn()
	if err != nil {
		return nc
	}
	if !c.drain.watchHijacked(c, raw) {
		return nc
	}
	return c.raw
}

// watchHijacked makes the drain notice when the socket of the hijacked connection c is closed. It
// reports false if Serve has returned.
func (d *drain) watchHijacked(c *conn, socket syscall.RawConn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if isClosed(d.ended) {
		return false // Serve has returned because of Force, and a handler that still runs has called Hijack
	}
	if len(d.hijacked) == 0 {
		d.watching.Go(d.checkHijacked)
	}
	d.hijacked[c] = socket
	return true
}

// stopWatching ends the goroutines that check hijacked connections. It is called once.
func (d *drain) stopWatching() {
	d.mu.Lock()
	close(d.ended)
	d.mu.Unlock()
	d.watching.Wait()
}

// checkHijacked checks the sockets of hijacked connections until none is left or Serve returns.
func (d *drain) checkHijacked() {
	pprof.SetGoroutineLabels(context.Background()) // removes the labels of the handler's goroutine, which has started this one
	timer := time.NewTimer(0)
	defer timer.Stop()
	begins := d.begins
	var took time.Duration // the time that the last check took
	for {
		wait := checkInterval
		if d.draining.Load() {
			begins = nil
			wait = drainCheckInterval(time.Since(d.began), took)
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-begins:
		case <-d.ended:
			return
		}
		began := time.Now()
		if d.releaseHijacked() == 0 {
			return
		}
		took = time.Since(began)
	}
}

// drainCheckInterval returns the time to wait before the next check. It grows with the time that
// the drain has lasted, and with the time that the last check took.
func drainCheckInterval(lasted, took time.Duration) time.Duration {
	return max(min(max(lasted/50, minCheckInterval), maxCheckInterval), checkPause*took)
}

// releaseHijacked makes the drain no longer wait for the hijacked connections whose sockets have
// been closed. It returns the number of the other hijacked connections.
//
// Two calls may run at the same time. So a connection stays in d.hijacked until its end is
// recorded: when a call returns, the ends of all connections that were closed before the call are
// recorded.
func (d *drain) releaseHijacked() (left int) {
	type watched struct {
		*conn
		socket syscall.RawConn
	}
	d.mu.Lock()
	all := make([]watched, 0, len(d.hijacked))
	for c, socket := range d.hijacked {
		all = append(all, watched{c, socket})
	}
	d.mu.Unlock()
	// d.mu is not locked here, because the checks may take long: there may be many sockets, and if
	// a handler calls Close while the method Control uses its socket, Control closes the socket. In
	// the meantime, other goroutines can accept and close connections.
	closed := slices.DeleteFunc(all, func(w watched) bool { return w.socket.Control(func(uintptr) {}) == nil })
	for _, w := range closed {
		// If another call has already recorded that the connection is closed, this event has no
		// effect.
		w.record(connEvent{kind: eventHijackerClose})
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range closed {
		delete(d.hijacked, w.conn)
	}
	return len(d.hijacked)
}
