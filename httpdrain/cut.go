package httpdrain

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// A Cut describes a request or a hijacked connection that was not finished when Force ended the
// drain. It may be a request whose handler has returned but whose response was not written
// completely. On an HTTP/2 connection, of the requests whose handlers had returned before Force,
// only the last one is known.
type Cut struct {
	Method string // empty if no handler was called, usually because the header was incomplete
	// Route is the pattern in r.Pattern when the response began, such as "GET /orders/{id}". If
	// there was none, it is the pattern that [WithRoute], or the server's [http.ServeMux], returns
	// for the path, or else the path. A pattern with a host can come only from r.Pattern. For a
	// CONNECT without a path, Route is the host and port of the target, such as "example.com:443".
	Route    string
	Remote   string        // the client's address
	Age      time.Duration // time since the header was read or, if it is incomplete, since its first bytes were read; 0 if unknown
	Hijacked bool          // the connection was hijacked, for example for a websocket
}

func (c Cut) String() string {
	return fmt.Sprintf("%s for %v", c.origin(), c.Age.Round(time.Millisecond))
}

// origin returns the request and the client's address, as in "GET /orders/{id} from
// 192.0.2.1:4711".
func (c Cut) origin() string {
	what := c.what()
	if c.Hijacked {
		what += " (hijacked)"
	}
	if c.Remote != "" {
		what += " from " + c.Remote
	}
	return what
}

// what returns a text that says what was cut off, as in "GET /orders/{id}".
func (c Cut) what() string {
	switch {
	case strings.HasPrefix(c.Route, c.Method+" "):
		return c.Route
	case c.Method != "":
		return c.Method + " " + c.Route
	}
	return "an incomplete header"
}

// A CutError reports that the context [ctxshutdown.Swansong.Work] was cancelled, by Force, before
// the drain was complete. It lists the requests and connections that were not finished.
type CutError struct {
	Name  string // name of the server's scope
	Cut   []Cut  // the unfinished requests and connections, oldest first; empty if only quiet connections were left
	Cause error  // the cause with which Work of the scope was cancelled, such as the argument of Force
}

// maxListed is the maximum number of entries of the field Cut that CutError.Error lists.
const maxListed = 5

// Error returns a message that lists the oldest entries of the field Cut.
func (e *CutError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "httpdrain: %s: drain cut short (%v)", e.Name, e.Cause)
	switch n := len(e.Cut); n {
	case 0:
		b.WriteString(" with no request left")
	case 1:
		b.WriteString(" with 1 request left: ")
	default:
		fmt.Fprintf(&b, " with %d requests left: ", n)
	}
	for i, c := range e.Cut {
		if i == maxListed {
			fmt.Fprintf(&b, " and %d more", len(e.Cut)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(c.String())
	}
	return b.String()
}

// Unwrap returns e.Cause.
func (e *CutError) Unwrap() error { return e.Cause }

// cutShort closes all connections and returns an error that lists the unfinished requests.
func (d *drain) cutShort() *CutError {
	e := &CutError{Name: d.name, Cause: context.Cause(d.work)}
	d.releaseHijacked()      // do not list connections that are closed already
	now := time.Since(epoch) // the same time for all connections, because closing the first ones takes time
	var all []unfinished
	for _, c := range d.snapshot() {
		all = append(all, c.unfinished(now)...)
		c.close()
	}
	// findPattern may call the user's code, so it is called only now: no lock is held, and all
	// connections are closed.
	for _, u := range all {
		if !u.hasPattern {
			u.Route = cmp.Or(d.findPattern(u.Method, u.Route), u.Route)
		}
		e.Cut = append(e.Cut, u.Cut)
	}
	slices.SortFunc(e.Cut, func(a, b Cut) int { return cmp.Compare(b.Age, a.Age) })
	return e
}

// An unfinished is the Cut of an unfinished request, before cutShort has looked for the pattern.
// The Route is a pattern if hasPattern is set, and otherwise still the path of the request.
type unfinished struct {
	Cut
	hasPattern bool
}

// unfinished returns the unfinished requests of c, with their ages. now is the present time, as the
// duration since epoch.
func (c *conn) unfinished(now time.Duration) (all []unfinished) {
	c.mu.Lock()
	remote := c.remote()
	for _, first := range []*request{c.requests, c.abandoned} {
		for q := first; q != nil; q = q.next {
			if !q.isStream {
				all = append(all, unfinished{Cut{Method: q.method, Route: q.route, Remote: remote, Age: now - q.start, Hijacked: c.state.hijacked}, q.isMatched})
			}
		}
	}
	if c.requests != nil || c.abandoned != nil || !c.state.hasUnknownRequest() {
		c.mu.Unlock()
		return all
	}
	all = append(all, unfinished{c.unknownRequest(c.state.unansweredSince, now), true})
	c.stepUnlock(connEvent{kind: eventListed})
	return all
}

// unknownRequest returns a Cut for a request whose handler was not called. readAt is the time at
// which its first bytes were read. Its age is computed for the time now, which counts from epoch.
// The caller holds c.mu.
func (c *conn) unknownRequest(readAt time.Time, now time.Duration) Cut {
	cut := Cut{Remote: c.remote()}
	if !readAt.IsZero() {
		cut.Age = epoch.Add(now).Sub(readAt)
	}
	return cut
}

func (c *conn) remote() string {
	if addr := c.raw.RemoteAddr(); addr != nil {
		return addr.String()
	}
	return ""
}

// findPattern returns the route pattern for a path, or "" if there is none. The path may also be
// the target of a CONNECT, for which only WithRoute may know a pattern. findPattern must not use
// the http.Request, because the request's handler may be running.
func (d *drain) findPattern(method, path string) (pattern string) {
	if d.route != nil {
		d.protect("WithRoute", func() { pattern = d.route(method, path) })
	} else if mux, ok := d.server.handler.(*http.ServeMux); ok && strings.HasPrefix(path, "/") {
		_, pattern = mux.Handler(&http.Request{Method: method, URL: &url.URL{Path: path}})
	}
	return pattern
}
