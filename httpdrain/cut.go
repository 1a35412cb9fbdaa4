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

// A Cut is somebody who was still being served when the drain was cut short: also one whose handler had returned, while the
// response was still being written. Of these, HTTP/2 knows the last one on a connection only.
type Cut struct {
	Method string // empty where no handler had been called yet, most often because the request's header had not come
	// Route is the pattern that r.Pattern had when the response began, such as "GET /orders/{id}", or else the one that
	// [WithRoute], or the server's [http.ServeMux], has for the path, or else the path. Patterns for a host are not found.
	Route    string
	Remote   string        // the client's address
	Age      time.Duration // since the request's header had come, or since its first bytes where it had not; 0 if unknown
	Hijacked bool          // the connection, for example to a websocket
}

func (c Cut) String() string {
	what := "a header"
	switch {
	case strings.HasPrefix(c.Route, c.Method+" "):
		what = c.Route
	case c.Method != "":
		what = c.Method + " " + c.Route
	}
	if c.Hijacked {
		what += " (hijacked)"
	}
	return fmt.Sprintf("%s from %s for %v", what, c.Remote, c.Age.Round(time.Millisecond))
}

// A CutError says that the drain was cut short by the end of Work, and who was cut.
type CutError struct {
	Name  string // of the server's scope
	Cut   []Cut  // oldest first; empty where only quiet connections were left
	Cause error  // why Work ended
}

// mentioned is how many are named in an error.
const mentioned = 5

// Error names the oldest.
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
		if i == mentioned {
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

// Unwrap returns the cause.
func (e *CutError) Unwrap() error { return e.Cause }

// cut closes what is left, and says what that was.
func (d *drain) cut() *CutError {
	e := &CutError{Name: d.name, Cause: context.Cause(d.work)}
	now := time.Since(epoch) // one for all, or to close some would age the others
	var all []left
	for _, c := range d.snapshot() {
		all = append(all, c.left(now)...)
		c.sever()
	}
	for _, l := range all { // under no lock, and when all are closed: it may call anybody's code
		if !l.matched {
			l.Route = cmp.Or(d.pattern(l.Method, l.Route), l.Route)
		}
		e.Cut = append(e.Cut, l.Cut)
	}
	slices.SortFunc(e.Cut, func(a, b Cut) int { return cmp.Compare(b.Age, a.Age) })
	return e
}

// A left is a Cut whose Route is still the path, unless it is matched.
type left struct {
	Cut
	matched bool
}

// left returns what the connection is in the middle of; now is since epoch.
func (c *conn) left(now time.Duration) (all []left) {
	c.mu.Lock()
	defer c.mu.Unlock()
	remote := c.remote()
	for q := c.requests; q != nil; q = q.next {
		if !q.watches {
			all = append(all, left{Cut{Method: q.method, Route: q.route, Remote: remote, Age: now - q.began, Hijacked: c.hijacked}, q.matched})
		}
	}
	begun := c.begun && !c.h2 || c.serving && c.h2
	if begun && c.requests == nil && !c.hijacked && !c.closed {
		all = append(all, left{c.unnamed(c.since, now), true})
		c.silent = time.Time{} // it is cut
	}
	return all
}

// unnamed returns the connection as one whose request's header has not come; now is since epoch. mu is held.
func (c *conn) unnamed(since time.Time, now time.Duration) Cut {
	somebody := Cut{Remote: c.remote()}
	if !since.IsZero() {
		somebody.Age = epoch.Add(now).Sub(since)
	}
	return somebody
}

func (c *conn) remote() string {
	if addr := c.raw.RemoteAddr(); addr != nil {
		return addr.String()
	}
	return ""
}

// pattern returns the route of a path, empty if it is not known. It may be called while the handler is running, and so
// reads nothing that belongs to it.
func (d *drain) pattern(method, path string) (pattern string) {
	if d.route != nil {
		d.protect("WithRoute", func() { pattern = d.route(method, path) })
	} else if mux, ok := d.server.handler.(*http.ServeMux); ok {
		_, pattern = mux.Handler(&http.Request{Method: method, URL: &url.URL{Path: path}})
	}
	return pattern
}
