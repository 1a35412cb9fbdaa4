package httpdrain

import (
	"net/http"
	"time"
)

// beginHandler records that the handler of request q is about to run.
func (c *conn) beginHandler(q *request) {
	c.mu.Lock()
	c.forgetAnswered()
	if q.r.ProtoMajor == 2 && !c.state.http2 {
		c.step(connEvent{kind: eventHTTP2})
	}
	if c.lastStart != 0 {
		// If the latest interval is longer than c.interval, it replaces c.interval. Otherwise
		// c.interval decreases, but by at most a quarter, so that after one short interval the
		// drain does not expect the next request much sooner than usual.
		c.interval = max(q.start-c.lastStart, c.interval*3/4)
	}
	c.lastStart = q.start
	if c.client != nil {
		c.client.recordStart(q.start)
	}
	q.next = c.requests
	c.requests = q
	c.stepUnlock(connEvent{kind: eventHandlerStart})
}

// endHandler records that the handler of request q has returned. The response might not be written
// completely yet: the server might still read the rest of the request's body, or the client might
// be slow to read.
//
// On HTTP/1, the server reports when the response has been written. On HTTP/2 the server does not
// report this while there are other requests on the connection. The drain needs the report only if
// one of them is an event stream of the Debug page: when only such streams are left, the drain
// closes the connection. In this case a goroutine waits until the response to q has been written.
func (c *conn) endHandler(q *request) {
	c.mu.Lock()
	if c.state.http2 && c.state.streams > 0 && !q.isStream {
		if w, ok := q.ResponseWriter.(interface{ CloseNotify() <-chan bool }); ok {
			c.mu.Unlock()
			buffered := w.CloseNotify() // CloseNotify would panic after the return of ServeHTTP, so call it now
			g := guardNamed(c.scope, (*requestSite)(q))
			go func() {
				<-buffered
				c.waitForFlush()
				g.Release()
				c.mu.Lock()
				c.removeUnlock(q)
			}()
			return
		}
	}
	c.removeUnlock(q)
}

// A writeProgress counts the writes on an HTTP/2 connection that has an event stream of the Debug
// page.
type writeProgress struct {
	underWay int
	bytes    int64         // number of bytes in completed writes
	ended    chan struct{} // closed when a write ends; nil while no goroutine waits for one
}

const (
	// flushDelay is how long waitForFlush waits for the server to begin writing the content of its
	// buffer. waitForFlush sleeps for that time in several parts; waitSteps says why.
	flushDelay = 100 * time.Millisecond
	// flushSize is larger than the server's buffer and the overhead of TLS together. When the
	// server has written that many more bytes, it has written what was in the buffer before.
	flushSize = 8 << 10
)

// waitForFlush blocks until the server has written the content of its buffer to the socket. The
// server writes without a pause, but a write blocks while the socket is full, and with TLS one
// buffer may take several writes.
func (c *conn) waitForFlush() {
	c.mu.Lock()
	enough := c.writes.bytes + flushSize
	c.mu.Unlock()
	for {
		for range waitSteps {
			time.Sleep(flushDelay / waitSteps)
		}
		c.mu.Lock()
		if c.writes.underWay == 0 || c.writes.bytes >= enough {
			c.mu.Unlock()
			return
		}
		if c.writes.ended == nil {
			c.writes.ended = make(chan struct{})
		}
		ended := c.writes.ended
		c.mu.Unlock()
		<-ended
	}
}

// beginWrite is called before each write to the socket. It reports whether endWrite must count the
// write.
func (c *conn) beginWrite() (counted bool) {
	c.mu.Lock()
	if counted = c.state.http2 && c.state.streams > 0; counted {
		c.writes.underWay++
	}
	c.stepUnlock(connEvent{kind: eventWrite})
	return counted
}

// endWrite is called after n bytes were written, with the result of beginWrite.
func (c *conn) endWrite(counted bool, n int64) {
	if !counted {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes.underWay--
	c.writes.bytes += n
	if c.writes.ended != nil {
		close(c.writes.ended)
		c.writes.ended = nil
	}
}

// removeUnlock records that the drain need not wait for the handler of request q any more. It
// removes q from the list of requests, unless q must stay there until later (see keepsRequest). If
// Force was called while the handler ran, the CutError lists q: on HTTP/2 the server might not have
// written the response yet. The caller holds c.mu; removeUnlock unlocks it.
func (c *conn) removeUnlock(q *request) {
	isStream := q.isStream
	q.isStream = false
	if !c.state.keepsRequest() {
		p := &c.requests
		for *p != q {
			p = &(*p).next
		}
		*p = q.next
		if c.state.http2 && !isStream && c.work.Err() != nil {
			q.next, c.abandoned = c.abandoned, q
		}
	}
	c.stepUnlock(connEvent{kind: eventHandlerEnd, stream: isStream})
}

// forgetAnswered removes the last request from the list of requests, and all requests from the list
// abandoned, if all handlers have returned and the connection is not hijacked. It is called when
// all responses have been written. The caller holds c.mu.
func (c *conn) forgetAnswered() {
	if c.state.handlers == 0 && !c.state.hijacked {
		c.requests, c.abandoned = nil, nil
	}
}

// excludeFromDrain makes the drain not wait for the request that w answers, and makes that request
// the last one on its connection. The handler of the request calls excludeFromDrain. The request's
// guard is still released when the handler returns, at the latest because the drain closes the
// connection.
//
// If middleware hides the request and several handlers are running, excludeFromDrain does nothing,
// because it cannot tell which of the handlers has called it.
func (c *conn) excludeFromDrain(w http.ResponseWriter) {
	q := requestOf(w)
	c.mu.Lock()
	if q == nil || q.conn != c {
		q = c.onlyRequest()
	}
	if q == nil {
		c.mu.Unlock()
		return
	}
	if q.isStream {
		c.mu.Unlock()
	} else {
		q.isStream = true
		c.stepUnlock(connEvent{kind: eventStream})
	}
	q.makeLast()
}

// onlyRequest returns the running request that is not an event stream of the Debug page. It returns
// nil if there are several or none. The caller holds c.mu.
func (c *conn) onlyRequest() *request {
	if c.state.handlers != c.state.streams+1 {
		return nil
	}
	q := c.requests
	for q.isStream {
		q = q.next
	}
	return q
}
