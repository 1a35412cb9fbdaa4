package http3drain

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/internal/ctxkey"
	"github.com/swansong-go/swansong/internal/drainstats"
)

// A stream is a request of a client. It is tracked from its first byte until the response has been
// written or, if a handler has taken it over, until it has been closed.
type stream struct {
	*quic.Stream
	opened time.Time

	// The fields below are guarded by conn.mu.
	hijacked  *ctxshutdown.Guard // not nil if a handler has taken the stream over
	returned  bool               // the handler has returned
	method    string             // empty until the header of the request has been read
	route     string             // r.Pattern if isMatched, else the path, or the host and port of a CONNECT
	isMatched bool
}

// cut describes the request. It must be called on a copy of the stream, without c.mu, because it
// may call code of the user to find the pattern of the route.
func (s *stream) cut(c *conn, now time.Time) httpdrain.Cut {
	if s.method != "" && !s.isMatched {
		s.route = cmp.Or(c.drain.findPattern(s.method, s.route), s.route)
	}
	return httpdrain.Cut{Method: s.method, Route: s.route, Remote: c.remote(), Age: now.Sub(s.opened), Hijacked: s.hijacked != nil}
}

// unfinished returns the requests of c that were not finished when Force was called. These include
// the requests whose handlers have returned since then, because closing the connection discards
// their responses.
func (c *conn) unfinished(now time.Time) (all []httpdrain.Cut) {
	c.mu.Lock()
	streams := append(c.copyStreams(), c.cut...)
	c.mu.Unlock()
	for _, s := range streams {
		all = append(all, s.cut(c, now))
	}
	return all
}

// copyStreams returns copies of the streams that are being served. The caller holds c.mu.
func (c *conn) copyStreams() []stream {
	streams := make([]stream, 0, len(c.streams))
	for _, s := range c.streams {
		streams = append(streams, *s)
	}
	return streams
}

// findPattern returns the pattern of the server's [http.ServeMux] for a path, or "" if there is
// none.
func (d *drain) findPattern(method, path string) (pattern string) {
	if mux, ok := d.handler().(*http.ServeMux); ok && strings.HasPrefix(path, "/") {
		_, pattern = mux.Handler(&http.Request{Method: method, URL: &url.URL{Path: path}})
	}
	return pattern
}

func (d *drain) handler() http.Handler {
	if d.server.Handler == nil {
		return http.DefaultServeMux
	}
	return d.server.Handler
}

// context returns the context from which the contexts of the requests derive: Work with the values
// of the user's ConnContext.
func (c *conn) context(ctx context.Context, qc *quic.Conn) context.Context {
	ctx = context.WithValue(ctx, http3.ServerContextKey, c.drain.server)
	if f := c.drain.server.ConnContext; f != nil {
		if ctx = f(ctx, qc); ctx == nil {
			// Package http3 panics when it gets nil, with a message that names ConnContext.
			return nil
		}
	}
	return &connContext{c.drain.work, ctx}
}

// A connContext is the context of a connection: Work with, in addition, the values of another
// context.
type connContext struct {
	context.Context
	values context.Context
}

// Value prefers the values of Work. Otherwise a scope in the other context would hide the server's
// scope.
func (x *connContext) Value(key any) any {
	if v := x.Context.Value(key); v != nil {
		return v
	}
	return x.values.Value(key)
}

// ServeHTTP calls the user's handler and holds a guard until the handler returns.
func (c *conn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c.drain.work.Err() != nil {
		drainstats.Refused.Add(1)
		http.Error(w, "503 the server has been stopped", http.StatusServiceUnavailable)
		return
	}
	q := &request{ResponseWriter: w, r: r, conn: c, stream: c.streamOf(r)}
	c.mu.Lock()
	q.stream.method, q.stream.route = r.Method, cmp.Or(r.URL.Path, r.Host)
	c.mu.Unlock()
	if t, ok := c.drain.scope.Value(ctxkey.Tracing{}).(ctxkey.Tracer); ok {
		t.Label(r.Context())
		defer pprof.SetGoroutineLabels(r.Context())
	}
	g := q.guard(c.drain.scope)
	defer g.Release()
	c.drain.handler().ServeHTTP(q, r)
	q.recordPattern()
}

// streamOf returns the stream of r. The body of a request has the id of its stream.
func (c *conn) streamOf(r *http.Request) *stream {
	if body, ok := r.Body.(interface{ StreamID() quic.StreamID }); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		if s := c.streams[body.StreamID()]; s != nil {
			return s
		}
	}
	// The stream is unknown, so the drain does not wait for this request.
	return &stream{opened: time.Now()}
}

// A request is the ResponseWriter that a handler gets.
type request struct {
	http.ResponseWriter
	r      *http.Request // only the handler's goroutine may use it, because handlers and middleware change it
	conn   *conn
	stream *stream
}

// guard returns a guard of s. If s is traced, reports name it by the request.
func (q *request) guard(s *ctxshutdown.Swansong) *ctxshutdown.Guard {
	g := s.Guard()
	if t, ok := s.Value(ctxkey.Tracing{}).(ctxkey.Tracer); ok {
		t.Name(g, q)
	}
	return g
}

// recordPattern records the pattern that a mux has set in the request, if a mux has set one.
func (q *request) recordPattern() {
	if q.r.Pattern != "" && !q.stream.isMatched {
		q.conn.mu.Lock()
		q.stream.route, q.stream.isMatched = q.r.Pattern, true
		q.conn.mu.Unlock()
	}
}

func (q *request) WriteHeader(code int) {
	q.recordPattern()
	q.ResponseWriter.WriteHeader(code)
}

func (q *request) Write(b []byte) (int, error) {
	q.recordPattern()
	return q.ResponseWriter.Write(b)
}

func (q *request) Flush() { q.FlushError() }

func (q *request) FlushError() error {
	q.recordPattern()
	return http.NewResponseController(q.ResponseWriter).Flush()
}

// HTTPStream implements [http3.HTTPStreamer]. The server waits for the stream until it is closed
// for writing. It is an error to take the stream over after the handler has returned.
func (q *request) HTTPStream() (*http3.Stream, error) {
	q.recordPattern()
	str, err := q.ResponseWriter.(http3.HTTPStreamer).HTTPStream()
	if err != nil {
		return nil, err
	}
	// Acquire and release the guard without holding conn.mu. Both may call the method String of
	// the request, which locks conn.mu.
	g := q.guard(q.conn.drain.hijacks)
	q.conn.mu.Lock()
	isFirst, isLate := q.stream.hijacked == nil, q.stream.returned
	if isFirst && !isLate {
		q.stream.hijacked, g = g, nil
	}
	q.conn.mu.Unlock()
	g.Release()
	if isFirst && isLate {
		return nil, errors.New("http3drain: HTTPStream: the handler has already returned; call HTTPStream before that")
	}
	return str, nil
}

// ReceivedSettings and Settings implement [http3.Settingser].
func (q *request) ReceivedSettings() <-chan struct{} {
	return q.ResponseWriter.(http3.Settingser).ReceivedSettings()
}

func (q *request) Settings() *http3.Settings { return q.ResponseWriter.(http3.Settingser).Settings() }

// Unwrap returns the server's ResponseWriter, for [http.ResponseController].
func (q *request) Unwrap() http.ResponseWriter { return q.ResponseWriter }

// String returns the request as reports name it, as in "GET /orders/{id} from 192.0.2.1:4711".
func (q *request) String() string {
	q.conn.mu.Lock()
	s := *q.stream
	q.conn.mu.Unlock()
	return name(s.cut(q.conn, time.Now()))
}

func name(c httpdrain.Cut) string {
	what := c.Method + " " + c.Route
	if strings.HasPrefix(c.Route, c.Method+" ") {
		what = c.Route
	}
	if c.Hijacked {
		what += " (hijacked)"
	}
	return what + " from " + c.Remote
}

// describe says what the guards of the server's scope stand for: requests or, if there are none,
// connections. It names the oldest requests.
func (d *drain) describe(int) ctxkey.Work {
	type running struct {
		conn *conn
		stream
	}
	var requests []running
	now, conns := time.Now(), d.snapshot()
	for _, c := range conns {
		c.mu.Lock()
		streams := c.copyStreams()
		c.mu.Unlock()
		for _, s := range streams {
			if s.method != "" && s.hijacked == nil {
				requests = append(requests, running{c, s})
			}
		}
	}
	if len(requests) == 0 {
		return ctxkey.Work{Noun: "connection", Count: len(conns)}
	}
	w := ctxkey.Work{Noun: "request", Count: len(requests)}
	slices.SortFunc(requests, func(a, b running) int { return a.opened.Compare(b.opened) })
	// cut may ask the mux for a pattern, which takes time, so it is called only for the oldest
	// requests.
	for _, q := range requests[:min(len(requests), ctxkey.MaxNamed)] {
		cut := q.cut(q.conn, now)
		w.Named = append(w.Named, ctxkey.NamedWork{Name: name(cut), Age: cut.Age})
	}
	return w
}

func describeHijacked(guards int) ctxkey.Work {
	return ctxkey.Work{Noun: "hijacked stream", Count: guards}
}
