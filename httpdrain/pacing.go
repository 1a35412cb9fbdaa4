package httpdrain

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// A connPacing is the part of a conn that is used only with [WithPacing]. With that option, each
// connection has a scope of its own. All fields except stop are guarded by conn.mu.
type connPacing struct {
	stop    context.CancelFunc // stops the connection's scope; nil without pacing
	stopped bool
	guard   *ctxshutdown.Guard // a guard that is held from the stop until the connection is gone, so that Work does not end
}

// stopScope stops the connection's own scope, if it has one.
func (c *conn) stopScope() {
	if c.pacing.stop == nil {
		return
	}
	c.mu.Lock()
	if !c.pacing.stopped && c.state.role != roleGone {
		c.pacing.guard = c.scope.Guard()
	}
	c.pacing.stopped = true
	c.mu.Unlock()
	c.pacing.stop()
}

// endPacing releases the guard of the connection's own scope and stops the scope, if the connection
// has one. It is called when the connection is gone. It may be called again, because on HTTP/2 a
// handler can begin to run after the connection is gone.
func (c *conn) endPacing() {
	c.mu.Lock()
	guard := c.pacing.guard
	c.pacing.guard, c.pacing.stopped = nil, true
	c.mu.Unlock()
	guard.Release()
	if c.pacing.stop != nil {
		c.pacing.stop()
	}
}

// stopPaced stops the scopes of conns: those of idle connections at once, and those of busy ones in
// a random order, at most d.pace in a second. It returns early when the drain has ended.
func (d *drain) stopPaced(conns []*conn) {
	interval := time.Duration(float64(time.Second) / d.pace)
	rand.Shuffle(len(conns), func(i, j int) { conns[i], conns[j] = conns[j], conns[i] })
	busy := conns[:0]
	for _, c := range conns {
		if c.isBusy() {
			busy = append(busy, c)
		} else {
			c.stopScope()
		}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for _, c := range busy {
		if !c.isBusy() {
			c.stopScope() // without a wait: the rate limits only the stops of busy connections
			continue
		}
		select {
		case <-timer.C:
		case <-d.empty:
			return
		case <-d.work.Done():
			return
		}
		c.stopScope()
		// Wait for at least interval, so that the rate is never exceeded, and for up to half as
		// long again, so that the stops are irregular.
		timer.Reset(interval + rand.N(interval/2+1))
	}
}

func (c *conn) isBusy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.isBusy()
}
