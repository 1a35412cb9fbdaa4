package httpdrain

import (
	"net/http"
	"time"
)

// enter notes that q's handler is about to run.
func (c *conn) enter(q *request) {
	c.mu.Lock()
	c.forget()
	c.silent = time.Time{}
	q.next = c.requests
	c.requests = q
	c.active++
	c.changed()
}

// leave notes that q's handler has returned. Its response may not be written yet: the server may be waiting for the rest of
// the request's body before it writes the header, or for a client that does not read. On HTTP/2 nobody hears of the end of
// one response among several, unless he asks before the handler has returned, which costs a goroutine. So that is done only
// where the drain might otherwise believe that nobody is left but those who watch, and close the connection.
func (c *conn) leave(q *request) {
	c.mu.Lock()
	if c.h2 && c.watching > 0 && !q.watches {
		if w, ok := q.ResponseWriter.(interface{ CloseNotify() <-chan bool }); ok {
			c.mu.Unlock()
			c.leaveWhen(w.CloseNotify(), q)
			return
		}
	}
	c.drop(q)
}

// leaveWhen has q stay, with a guard, until its response is written: first into a buffer of the server's, which is what written
// tells of, and then, without a pause, into the socket, which may have no room.
func (c *conn) leaveWhen(written <-chan bool, q *request) {
	g := c.scope.Guard()
	go func() {
		<-written
		c.mu.Lock()
		enough := c.out + flushSize
		c.mu.Unlock()
		for {
			for range steps {
				time.Sleep(flushPause / steps)
			}
			c.mu.Lock()
			if c.writing == 0 || c.out >= enough {
				break
			}
			if c.ended == nil {
				c.ended = make(chan struct{})
			}
			ended := c.ended
			c.mu.Unlock()
			<-ended // and once more: under TLS, what is in the buffer takes several writes
		}
		c.mu.Unlock()
		g.Release()
		c.mu.Lock()
		c.drop(q)
	}()
}

const (
	// flushPause is by when the server has begun to write what is in its buffer, in pieces for the reason given at steps.
	flushPause = 100 * time.Millisecond
	// flushSize is more than the buffer holds, with what TLS adds: who has read as much has room for what was in it, however
	// many others are being written to him.
	flushSize = 8 << 10
)

// written is called after a write, with what writes has returned, and how much it was.
func (c *conn) written(counted bool, n int64) {
	if !counted {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing--
	c.out += n
	if c.ended != nil {
		close(c.ended)
		c.ended = nil
	}
}

// drop notes that q is not active any more, and unlocks mu. The last one stays in the list until it is answered; and so does
// one that has hijacked the connection, as what the connection is known by.
func (c *conn) drop(q *request) {
	c.active--
	if q.watches {
		q.watches = false
		c.watching--
	}
	last := c.active == 0 && c.serving
	if c.closed || !last && !c.hijacked {
		p := &c.requests
		for *p != q {
			p = &(*p).next
		}
		*p = q.next
	}
	c.changed()
}

// changed accounts for a change of the active requests, and unlocks mu.
func (c *conn) changed() {
	if c.drain.draining.Load() {
		c.owe()
	}
	c.account()
}

// forget drops the last request, if its handler has returned, and the connection is not known by it. mu is held.
func (c *conn) forget() {
	if c.active == 0 && !c.hijacked {
		c.requests = nil
	}
}

// owe sees to it that a response that is being written is a guard, though its handler has returned. Only in the drain: before,
// it would cost each request a second guard, and nobody asks. mu is held.
func (c *conn) owe() {
	owes := c.serving && c.active == 0 && !c.hijacked && !c.closed
	if owes && c.owes == nil {
		c.owes = c.scope.Guard()
	} else if !owes {
		c.owes.Release()
		c.owes = nil
	}
}

// watch has the request that w answers leave what the drain waits for, and be the last one on its connection. Its guard goes
// when it ends, which is when the drain is over, if not before. It is called by the request's handler. Where middleware hides
// the request, and several are running, nobody can tell which one it is, and nothing happens.
func (c *conn) watch(w http.ResponseWriter) {
	q := requestOf(w)
	c.mu.Lock()
	if q == nil || q.conn != c {
		q = c.only()
	}
	if q != nil && !q.watches {
		q.watches = true
		c.watching++
	}
	c.account()
	if q != nil {
		q.last()
	}
}

// only returns the request that the drain waits for, nil if there are several. mu is held.
func (c *conn) only() *request {
	if c.active != c.watching+1 {
		return nil
	}
	q := c.requests
	for q.watches {
		q = q.next
	}
	return q
}
