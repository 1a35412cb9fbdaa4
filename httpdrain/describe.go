package httpdrain

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/ctxkey"
)

// describe says what the guards of the server's scope stand for: for its requests or, if there are
// none, for the connections that are about to be closed. It names the oldest requests and their
// clients.
func (d *drain) describe(int) ctxkey.Work {
	var oldest oldestRequests
	requests, connections, now := 0, 0, time.Since(epoch)
	for _, c := range d.snapshot() {
		requests += c.countRequests(now, &oldest)
		if !c.isHijacked() {
			connections++
		}
	}
	if requests == 0 {
		return ctxkey.Work{Noun: "connection", Count: connections}
	}
	w := ctxkey.Work{Noun: "request", Count: requests}
	// findPattern may call the user's code, so it is called only now, when no lock is held.
	for _, u := range oldest {
		if !u.hasPattern {
			u.Route = cmp.Or(d.findPattern(u.Method, u.Route), u.Route)
		}
		w.Named = append(w.Named, ctxkey.NamedWork{Name: u.origin(), Age: u.Age})
	}
	return w
}

// oldestRequests lists at most ctxkey.MaxNamed requests, the oldest first.
type oldestRequests []unfinished

// add adds u, unless the list is full of requests that are older than u.
func (o *oldestRequests) add(u unfinished) {
	i, _ := slices.BinarySearchFunc(*o, u, func(a, b unfinished) int { return cmp.Compare(b.Age, a.Age) })
	if i < ctxkey.MaxNamed {
		*o = slices.Insert((*o)[:min(len(*o), ctxkey.MaxNamed-1)], i, u)
	}
}

// describePaced reports no work for the guards of a connection that has a scope of its own, because
// describe already counts the requests of this connection.
func describePaced(int) ctxkey.Work { return ctxkey.Work{} }

func describeHijacked(guards int) ctxkey.Work {
	return ctxkey.Work{Noun: "hijacked connection", Count: guards}
}

// countRequests returns the number of requests that the drain of c waits for, and adds them to
// oldest. Their ages are computed for the present time now, a duration since epoch.
func (c *conn) countRequests(now time.Duration, oldest *oldestRequests) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.hijacked {
		return 0
	}
	remote := ""
	for q := c.requests; q != nil; q = q.next {
		if !q.isStream {
			n++
			remote = cmp.Or(remote, c.remote())
			oldest.add(unfinished{Cut{Method: q.method, Route: q.route, Remote: remote, Age: now - q.start}, q.isMatched})
		}
	}
	return n
}

func (c *conn) isHijacked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.hijacked
}

// beginTrace returns a guard for the request q. Reports name the guard by the method, the route and
// the client's address. beginTrace also labels the calling goroutine, so that reports find the
// handler's stack. The context of the http.Request does not get the label: for that the handler
// would need a copy of the http.Request, and net/http would not delete the temporary files of a
// form in the copy.
func (c *conn) beginTrace(q *request) *ctxshutdown.Guard {
	if t, ok := c.scope.Value(ctxkey.Tracing{}).(ctxkey.Tracer); ok {
		t.Label(q.r.Context())
	}
	return guardNamed(c.scope, (*requestSite)(q))
}

// guardNamed returns a guard of s. If s is traced, reports name it by site, which is evaluated when
// a report is made.
func guardNamed(s *ctxshutdown.Swansong, site fmt.Stringer) *ctxshutdown.Guard {
	g := s.Guard()
	if t, ok := s.Value(ctxkey.Tracing{}).(ctxkey.Tracer); ok {
		t.Name(g, site)
	}
	return g
}

// A requestSite is a request whose method String returns the name of the request in reports.
type requestSite request

// String returns the request as in "GET /orders/{id} from 192.0.2.1:4711". It locks conn.mu.
func (s *requestSite) String() string {
	s.conn.mu.Lock()
	cut := Cut{Method: s.method, Route: s.route, Remote: s.conn.remote()}
	isMatched := s.isMatched
	s.conn.mu.Unlock()
	if !isMatched {
		cut.Route = cmp.Or(s.conn.drain.findPattern(cut.Method, cut.Route), cut.Route)
	}
	return cut.origin()
}

// A fixedSite is the name of a request or connection in reports, computed in advance.
type fixedSite string

func (s fixedSite) String() string { return string(s) }

// latestRequest describes the latest request of c for reports, or returns nil if c is not traced.
// The caller holds c.mu. A guard that is released while c.mu is held must be named by latestRequest
// and not by a requestSite: the release may log the name, and a requestSite would lock c.mu.
func (c *conn) latestRequest() fmt.Stringer {
	if !c.drain.traced {
		return nil
	}
	cut := Cut{Remote: c.remote(), Hijacked: c.state.hijacked}
	if q := c.requests; q != nil {
		cut.Method, cut.Route = q.method, q.route
	}
	return fixedSite(cut.origin())
}
