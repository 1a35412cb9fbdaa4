package httpdrain

import (
	"io"
	"net/http"
	"runtime/pprof"
	"strconv"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/drainstats"
)

// A request is the ResponseWriter that a handler gets, and an entry in its connection's list of
// requests. It is a single small object because httpdrain allocates one for each request. As a
// ResponseWriter it notices when the header is about to be written, which is the last time at which
// a response can say that its connection will be closed.
type request struct {
	http.ResponseWriter
	r             *http.Request // only the handler's goroutine may use r, because handlers and middleware change r
	conn          *conn
	start         time.Duration // when the header was read, as the time since epoch
	method        string        // a copy of r.Method, which other goroutines may read
	headerWritten bool

	// The fields below are guarded by conn.mu. Only the handler's goroutine writes isMatched.
	isMatched bool
	isStream  bool   // the request is answered with an event stream of the Debug page
	route     string // r.Pattern if isMatched, else the path, or the host and port of a CONNECT
	next      *request
}

// epoch is the time from which the start of each request is measured: time.Since(epoch) is faster
// than time.Now().
var epoch = time.Now()

func (q *request) init(c *conn, w http.ResponseWriter, r *http.Request) *request {
	q.ResponseWriter, q.r, q.conn = w, r, c
	q.method, q.route, q.start = r.Method, r.URL.Path, time.Since(epoch)
	if q.route == "" {
		q.route = r.Host // a CONNECT has a host and a port instead of a path
	}
	return q
}

// beginHeader is called before the header of the response is written. It records the pattern of the
// route, and makes the response say whether it is the last one on its connection.
func (q *request) beginHeader() {
	if q.headerWritten {
		return
	}
	q.headerWritten = true
	q.recordPattern()
	d := q.conn.drain
	if d.draining.Load() {
		q.makeLast()
	} else if l := d.lameDuck.Load(); l != nil && l.isTurn(q.conn) {
		q.makeLast()
	}
}

// recordPattern makes q.route the pattern that a mux has set in the request, if a mux has set one.
func (q *request) recordPattern() {
	if q.r.Pattern != "" && !q.isMatched {
		q.conn.mu.Lock()
		q.route, q.isMatched = q.r.Pattern, true
		q.conn.mu.Unlock()
	}
}

// makeLast makes the response say that it is the last one on its connection.
func (q *request) makeLast() { q.conn.makeLast(q.Header()) }

// makeLast makes a response, which has the headers h, the last one of its connection. On HTTP/1 it
// sets Connection: close. On HTTP/2 it requests the first GOAWAY, because Connection: close would
// make net/http send the second one. If HTTP/2 is served by a TLSNextProto function of the user,
// httpdrain cannot send a GOAWAY, and sets Connection: close as well.
func (c *conn) makeLast(h http.Header) {
	c.mu.Lock()
	if !c.state.canSendGoAway {
		h.Set("Connection", "close")
	}
	c.stepUnlock(connEvent{kind: eventLastResponse})
}

func (q *request) WriteHeader(code int) {
	// The header of a 101 keeps its Connection: Upgrade, without which no client accepts it.
	if isFinal(code) && code != http.StatusSwitchingProtocols {
		q.beginHeader()
	}
	q.ResponseWriter.WriteHeader(code)
}

// isFinal reports whether code is a status after which no other one follows. Codes below 200 are
// informational, except for 101, and net/http panics on codes that do not have three digits.
func isFinal(code int) bool {
	return code >= 200 && code <= 999 || code == http.StatusSwitchingProtocols
}

func (q *request) Write(b []byte) (int, error) {
	q.beginHeader()
	return q.ResponseWriter.Write(b)
}

func (q *request) WriteString(s string) (int, error) {
	q.beginHeader()
	return io.WriteString(q.ResponseWriter, s)
}

func (q *request) Flush() { q.FlushError() }

func (q *request) FlushError() error {
	q.beginHeader()
	return http.NewResponseController(q.ResponseWriter).Flush()
}

func (q *request) itself() *request { return q }

// requestOf returns the request that w answers. It returns nil if w is, or contains, a
// ResponseWriter of other code without an Unwrap method.
func requestOf(w http.ResponseWriter) *request {
	for {
		if own, ok := w.(interface{ itself() *request }); ok {
			return own.itself()
		}
		outer, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return nil
		}
		w = outer.Unwrap()
	}
}

// Unwrap returns the server's ResponseWriter, for [http.ResponseController].
func (q *request) Unwrap() http.ResponseWriter { return q.ResponseWriter }

// CloseNotify implements the deprecated [http.CloseNotifier], for old handlers.
func (q *request) CloseNotify() <-chan bool {
	if cn, ok := q.ResponseWriter.(interface{ CloseNotify() <-chan bool }); ok {
		return cn.CloseNotify()
	}
	return make(chan bool)
}

// A writer2 is the ResponseWriter for HTTP/2. It adds to a request the methods that only HTTP/2
// has.
type writer2 struct{ request }

func (w *writer2) Push(target string, opts *http.PushOptions) error {
	if p, ok := w.ResponseWriter.(http.Pusher); ok {
		return p.Push(target, opts)
	}
	return http.ErrNotSupported
}

// ServeHTTP calls the user's handler and holds a guard until the handler returns.
func (sv *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	handler := sv.handler
	if handler == nil {
		handler = http.DefaultServeMux
	}
	c, ok := r.Context().Value(connKey{}).(*conn)
	if !ok || c.drain.server != sv {
		handler.ServeHTTP(w, r) // the connection was not accepted by a call of Serve for this server
		return
	}
	if c.work.Err() != nil {
		c.refuse(w, "the server has been stopped")
		return
	}
	if c.drain.refusesRequests() {
		w.Header().Set("Retry-After", strconv.FormatInt(int64((c.drain.retryAfter+time.Second-1)/time.Second), 10))
		c.refuse(w, "the server is shutting down")
		return
	}
	var q *request
	// A response of HTTP/1 can be hijacked. r.ProtoMajor does not show whether the connection is
	// HTTP/1: over HTTP/1 a client may send the request "PRI * HTTP/2.0", which net/http passes to
	// the handler so that it can hijack the connection.
	if _, isHTTP1 := w.(http.Hijacker); isHTTP1 {
		w1 := new(writer1)
		q, w = w1.init(c, w, r), w1
	} else {
		w2 := new(writer2)
		q, w = w2.init(c, w, r), w2
	}
	c.beginHandler(q)
	defer c.endHandler(q) // this deferred call runs after g.Release, so that no guard is left after the drain
	var g *ctxshutdown.Guard
	if c.drain.traced {
		g = c.beginTrace(q)
		defer pprof.SetGoroutineLabels(r.Context())
	} else {
		g = c.scope.Guard() // ctxshutdown.Acquire would be slower: it searches the context for the scope
	}
	defer g.Release()
	handler.ServeHTTP(w, r)
	q.beginHeader() // if the handler has not written a header, the server is about to write one
}

func (c *conn) refuse(w http.ResponseWriter, reason string) {
	drainstats.Refused.Add(1)
	c.makeLast(w.Header())
	http.Error(w, "503 "+reason, http.StatusServiceUnavailable)
}

// readFrom copies r to w. It calls w.ReadFrom, which may use sendfile, if w has that method. It
// does not call io.Copy for that, because io.Copy prefers r.WriteTo. The io.Copy whose call of
// ReadFrom has led here has already looked for WriteTo.
func readFrom(w io.Writer, r io.Reader) (int64, error) {
	if rf, ok := w.(io.ReaderFrom); ok {
		return rf.ReadFrom(r)
	}
	return io.Copy(struct{ io.Writer }{w}, r)
}
