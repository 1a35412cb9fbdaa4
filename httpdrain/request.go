package httpdrain

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// A request is an entry of the list that the hard tier makes, and the handler's ResponseWriter, in one object: it is what
// a request costs in allocations, and kept small. (Its guard is on the handler's stack.) It sees the last moment at which the response can say that the connection is at its end.
type request struct {
	http.ResponseWriter
	r      *http.Request // the handler's own; nobody else may read it
	conn   *conn
	began  time.Duration // since epoch
	method string        // a copy, because handlers and middleware change what is in r
	begun  bool          // the header is out of our hands

	// Under conn.mu. The first is written by the handler's goroutine only.
	matched bool
	watches bool
	route   string // the path, or the pattern once it is matched
	next    *request
}

// epoch is for ages: to ask for the time since then is half as dear as to ask for the time.
var epoch = time.Now()

func (q *request) init(c *conn, w http.ResponseWriter, r *http.Request) *request {
	q.ResponseWriter, q.r, q.conn = w, r, c
	q.method, q.route, q.began = r.Method, r.URL.Path, time.Since(epoch)
	return q
}

// begins is called when the header is about to be written.
func (q *request) begins() {
	if q.begun {
		return
	}
	q.begun = true
	q.match()
	if q.conn.drain.draining.Load() {
		q.last()
	}
}

// match takes note of the pattern, once.
func (q *request) match() {
	if q.r.Pattern != "" && !q.matched {
		q.conn.mu.Lock()
		q.route, q.matched = q.r.Pattern, true
		q.conn.mu.Unlock()
	}
}

// last has the response say that it is the last one on its connection. On HTTP/2, the server makes a GOAWAY of that.
func (q *request) last() { q.conn.last(q.Header()) }

func (c *conn) last(h http.Header) {
	h.Set("Connection", "close")
	c.mu.Lock()
	c.told = true
	c.silent = time.Time{} // where it is refused: it is answered
	c.mu.Unlock()
}

func (q *request) WriteHeader(code int) {
	if code >= 200 { // others come before the header
		q.begins()
	}
	q.ResponseWriter.WriteHeader(code)
}

func (q *request) Write(b []byte) (int, error) {
	q.begins()
	return q.ResponseWriter.Write(b)
}

func (q *request) WriteString(s string) (int, error) {
	q.begins()
	return io.WriteString(q.ResponseWriter, s)
}

func (q *request) Flush() { q.FlushError() }

func (q *request) FlushError() error {
	q.begins()
	return http.NewResponseController(q.ResponseWriter).Flush()
}

// itself is for requestOf.
func (q *request) itself() *request { return q }

// requestOf returns the request that w answers, nil if it is one of somebody else's who does not say what is below.
func requestOf(w http.ResponseWriter) *request {
	for {
		if ours, ok := w.(interface{ itself() *request }); ok {
			return ours.itself()
		}
		outer, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return nil
		}
		w = outer.Unwrap()
	}
}

// Unwrap is for [http.ResponseController].
func (q *request) Unwrap() http.ResponseWriter { return q.ResponseWriter }

// CloseNotify is for handlers from before there were contexts.
func (q *request) CloseNotify() <-chan bool {
	if cn, ok := q.ResponseWriter.(interface{ CloseNotify() <-chan bool }); ok {
		return cn.CloseNotify()
	}
	return make(chan bool)
}

// A writer1 has what a ResponseWriter of HTTP/1 has.
type writer1 struct{ request }

func (w *writer1) ReadFrom(r io.Reader) (int64, error) {
	w.begins()
	return readFrom(w.ResponseWriter, r)
}

func (w *writer1) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.match() // and not begins: reverse proxies send the header on, and what is a connection from now on does not close
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// A writer2 has what a ResponseWriter of HTTP/2 has.
type writer2 struct{ request }

func (w *writer2) Push(target string, opts *http.PushOptions) error {
	if p, ok := w.ResponseWriter.(http.Pusher); ok {
		return p.Push(target, opts)
	}
	return http.ErrNotSupported
}

// ServeHTTP runs the user's handler for a request, as a guard.
func (sv *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	handler := sv.handler
	if handler == nil {
		handler = http.DefaultServeMux
	}
	c, ok := r.Context().Value(connKey{}).(*conn)
	if !ok || c.drain.server != sv {
		handler.ServeHTTP(w, r) // not by way of a server of ours
		return
	}
	if c.work.Err() != nil {
		c.refuse(w, "the server has been stopped")
		return
	}
	if c.drain.late() {
		w.Header().Set("Retry-After", strconv.FormatInt(int64((c.drain.retryAfter+time.Second-1)/time.Second), 10))
		c.refuse(w, "the server is shutting down")
		return
	}
	var q *request
	if r.ProtoMajor == 1 {
		w1 := new(writer1)
		q, w = w1.init(c, w, r), w1
	} else {
		w2 := new(writer2)
		q, w = w2.init(c, w, r), w2
	}
	c.enter(q)
	defer c.leave(q)     // after the guard: when the drain is over, so are the guards
	g := c.scope.Guard() // Acquire of the context would go and look for the scope
	defer g.Release()    // also when the handler panics
	handler.ServeHTTP(w, r)
	q.begins() // if it has written nothing, the server does
}

func (c *conn) refuse(w http.ResponseWriter, why string) {
	counters.refused.Add(1)
	c.last(w.Header())
	http.Error(w, "503 "+why, http.StatusServiceUnavailable)
}

// readFrom is w.ReadFrom, and with it sendfile, where there is one. io.Copy would ask r for WriteTo first, which has been
// done by whoever comes here.
func readFrom(w io.Writer, r io.Reader) (int64, error) {
	if rf, ok := w.(io.ReaderFrom); ok {
		return rf.ReadFrom(r)
	}
	return io.Copy(struct{ io.Writer }{w}, r)
}
