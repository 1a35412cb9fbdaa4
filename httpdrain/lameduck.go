package httpdrain

import (
	"cmp"
	"slices"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
)

// In the lame duck phase of the process, the server still accepts everything. It uses the time to
// send clients to other servers, so that few are left at the stop. A client that is left then, and
// is far away, may send a request while the server closes its connection, and so lose the request.
//
// Each connection has its turn, a random time in the first half of the phase. From then on, its
// next response says Connection: close. On HTTP/2, the client is told at its turn to open no more
// streams. So the clients do not all connect to the other servers at once. The second half is for
// clients that rarely send a request.

// A lameDuck is the lame duck phase of the process.
type lameDuck struct {
	began  time.Time
	length time.Duration
}

// turn returns the time from the beginning of the lame duck phase until the turn of c. From its
// turn on, the server tells the client of c to use another server.
func (l *lameDuck) turn(c *conn) time.Duration {
	return time.Duration(c.turn * float64(l.length) / 2)
}

// isTurn reports whether the turn of c has come, and the server is to tell the client of c to use
// another server.
func (l *lameDuck) isTurn(c *conn) bool { return time.Since(l.began) >= l.turn(c) }

// awaitLameDuck waits for the lame duck phase of p, if there is one, and then tells each HTTP/2
// client, at the turn of its connection, to open no more streams. It returns when the scope is
// stopped. HTTP/1 clients are told by request.beginHeader, in their next response.
func (d *drain) awaitLameDuck(p *graceful.Process) {
	select {
	case <-p.LameDuck():
	case <-d.scope.Done():
		return
	}
	status := p.Status()
	if status.Phase != graceful.LameDuck {
		return
	}
	l := &lameDuck{status.Since, status.Until.Sub(status.Since)}
	d.lameDuck.Store(l)
	conns := d.snapshot()
	slices.SortFunc(conns, func(a, b *conn) int { return cmp.Compare(a.turn, b.turn) })
	for _, c := range conns {
		if !c.isHTTP2() {
			continue
		}
		if !ctxshutdown.Sleep(d.scope, time.Until(l.began.Add(l.turn(c)))) {
			return
		}
		c.record(connEvent{kind: eventLastResponse})
	}
}
