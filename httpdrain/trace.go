package httpdrain

import (
	"cmp"
	"fmt"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/ctxkey"
)

// beginTrace returns a guard for the request q, which reports name by its method, its route and the
// client's address. It also labels the calling goroutine, so that reports find the handler's stack.
// The context of the http.Request does not get the label: for that the handler would need a copy of the
// http.Request, and net/http would not delete the temporary files of a form in the copy.
func (c *conn) beginTrace(q *request) *ctxshutdown.Guard {
	if t, ok := c.scope.Value(ctxkey.Tracing{}).(ctxkey.Tracer); ok {
		t.Label(q.r.Context())
	}
	return guardNamed(c.scope, (*requestSite)(q))
}

// guardNamed returns a guard of s. If s is traced, reports name it by site, which is evaluated when a
// report is made.
func guardNamed(s *ctxshutdown.Swansong, site fmt.Stringer) *ctxshutdown.Guard {
	g := s.Guard()
	if t, ok := s.Value(ctxkey.Tracing{}).(ctxkey.Tracer); ok {
		t.Name(g, site)
	}
	return g
}

// A requestSite is a request as reports name it.
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

// A fixedSite is a description that is known from the start.
type fixedSite string

func (s fixedSite) String() string { return string(s) }

// latestRequest describes the latest request of c for reports, or returns nil if c is not traced. The
// caller holds c.mu. A guard that is released while c.mu is held must use it instead of a requestSite,
// because the release may log the description.
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
