package httpdrain

import (
	"cmp"
	"time"

	"github.com/swansong-go/swansong/internal/ctxkey"
)

// describe says what the guards of the server's scope stand for: for its requests or, if there are
// none, for the connections that are about to be closed. It names the oldest request and its client.
func (d *drain) describe(int) ctxkey.Work {
	w := ctxkey.Work{Noun: "request"}
	oldest, connections, now := unfinished{}, 0, time.Since(epoch)
	for _, c := range d.snapshot() {
		n, u := c.countRequests(now)
		w.Count += n
		if n > 0 && u.Age >= oldest.Age {
			oldest = u
		}
		if !c.isHijacked() {
			connections++
		}
	}
	if w.Count == 0 {
		return ctxkey.Work{Noun: "connection", Count: connections}
	}
	// findPattern may call the user's code, so it is called only now, when no lock is held.
	if !oldest.hasPattern {
		oldest.Route = cmp.Or(d.findPattern(oldest.Method, oldest.Route), oldest.Route)
	}
	w.Oldest, w.Age = oldest.origin(), oldest.Age
	return w
}

// describePaced is for the guards of a connection that has a scope of its own. describe counts its
// requests, too.
func describePaced(int) ctxkey.Work { return ctxkey.Work{} }

func describeHijacked(guards int) ctxkey.Work {
	return ctxkey.Work{Noun: "hijacked connection", Count: guards}
}

// countRequests returns the number of requests that the drain of c waits for, and the oldest of them.
// The parameter now is the time since epoch.
func (c *conn) countRequests(now time.Duration) (n int, oldest unfinished) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.hijacked {
		return 0, oldest
	}
	for q := c.requests; q != nil; q = q.next { // the latest request first
		if !q.isStream {
			n++
			oldest = unfinished{Cut{Method: q.method, Route: q.route, Remote: c.remote(), Age: now - q.start}, q.isMatched}
		}
	}
	return n, oldest
}

func (c *conn) isHijacked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.hijacked
}
