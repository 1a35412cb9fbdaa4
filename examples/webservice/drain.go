package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

const (
	// linger is how long a connection may be quiet during the drain before it is closed. A client that is about to
	// send its next request does so within this time, is answered, and learns that the connection is at its end.
	linger = 100 * time.Millisecond
	// lull is how long nobody may connect before the listener counts as empty.
	lull = time.Millisecond
	// backlog bounds what is accepted after the stop where people never cease to connect. It is as long as the kernel's
	// queue gets by default, so that whoever was in it is served. A time would not do: a process that is kept from
	// running for that long would close a full queue.
	backlog = 4096
)

// serve serves until s is told to stop, and returns when every connection has ended. The order is what loses nothing:
//
//  1. Accept what is in the kernel's queue, then close the listener: whoever has connected is served.
//  2. Say Connection: close in every response from now on, and keep answering. (http.Server.Shutdown closes idle
//     connections here, with the next request already in the socket.)
//  3. Close a connection once it has been quiet for the linger.
func serve(s *ctxshutdown.Swansong, ln net.Listener, handler http.Handler, linger time.Duration) error {
	d := &drain{linger: linger, conns: map[*connection]struct{}{}, changed: make(chan struct{}, 1)}
	srv := &http.Server{
		BaseContext: s.BaseContext, // the hard tier: a request in flight is not cancelled by the stop
		ConnState:   d.connState,
		Handler:     d.guarded(handler),
		// A connection in the middle of a header is waited for, but not for ever.
		ReadHeaderTimeout: 2 * time.Second,
	}
	el := &emptyingListener{TCPListener: ln.(*net.TCPListener), drain: d, stop: s}
	context.AfterFunc(s, func() { el.SetDeadline(time.Now().Add(lull)) })

	err := srv.Serve(el)
	if s.Err() == nil {
		s.Shutdown() // the listener has failed
	} else if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	d.closing.Store(true)
	d.wait(s.Work())
	srv.Close() // nothing is left, unless the drain was cut short
	return err
}

// guarded makes every request a guard of the scope that its context carries.
func (d *drain) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g, ok := ctxshutdown.Acquire(r.Context())
		if !ok {
			w.Header().Set("Connection", "close")
			http.Error(w, "shutting down", http.StatusServiceUnavailable)
			return
		}
		defer g.Release()
		if d.closing.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// A drain knows the connections of a server, and ends them.
type drain struct {
	linger  time.Duration
	closing atomic.Bool

	mu      sync.Mutex
	conns   map[*connection]struct{}
	changed chan struct{} // a connection is quiet, or gone
}

// A connection knows whether the client is owed an answer. ConnState alone does not tell: for the server, a connection
// is idle until the whole header of the next request has arrived.
type connection struct {
	*net.TCPConn // not a net.Conn, so that the server finds ReadFrom, and sendfile still works
	drain        *drain
	quiet        time.Time   // since when nothing of a request has come; zero once something has
	ending       atomic.Bool // told to end unless there is a request
}

func (c *connection) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	// A read whose deadline has passed has not looked at the socket, where on a busy machine the request may have been
	// for a while.
	for looks := 0; looks < 2 && c.ending.Load() && errors.Is(err, os.ErrDeadlineExceeded); looks++ {
		c.SetReadDeadline(time.Now().Add(lull))
		n, err = c.TCPConn.Read(b)
	}
	if n > 0 {
		c.drain.mu.Lock()
		c.quiet = time.Time{}
		if c.ending.Swap(false) {
			c.SetReadDeadline(time.Time{}) // there is a request after all: read all of it
		}
		c.drain.mu.Unlock()
	}
	return n, err
}

// connState is called by the server, one connection at a time, whenever a request begins or ends.
func (d *drain) connState(nc net.Conn, state http.ConnState) {
	c := nc.(*connection)
	d.mu.Lock()
	switch state {
	case http.StateNew, http.StateIdle:
		c.quiet = time.Now()
		d.conns[c] = struct{}{}
	case http.StateClosed, http.StateHijacked:
		delete(d.conns, c)
	}
	d.mu.Unlock()
	if d.closing.Load() && state != http.StateActive {
		select {
		case d.changed <- struct{}{}:
		default: // wait has not looked yet, and will see this too
		}
	}
}

// wait returns when every connection has ended, or work has.
func (d *drain) wait(work context.Context) {
	began := time.Now()
	for {
		next, left := d.closeQuiet(began)
		if !left {
			return
		}
		timer := time.NewTimer(next)
		select {
		case <-timer.C:
		case <-d.changed:
		case <-work.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// closeQuiet closes the connections that have been quiet for the linger, counted from the beginning of the drain on,
// and returns when to look again.
func (d *drain) closeQuiet(began time.Time) (next time.Duration, left bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	next = d.linger
	for c := range d.conns {
		if c.quiet.IsZero() {
			continue
		}
		if c.quiet.Before(began) {
			c.quiet = began
		}
		if wait := d.linger - time.Since(c.quiet); wait > 0 {
			next = min(next, wait)
			continue
		}
		// Not Close: a request that the server has just read would be carried out and never answered. This ends the
		// server's wait for one, and it closes the connection and reports StateClosed.
		c.ending.Store(true)
		c.quiet = time.Now() // again after another linger, should the server just be lifting the deadline
		c.SetReadDeadline(time.Now())
	}
	return next, len(d.conns) > 0
}

// An emptyingListener goes on accepting after the stop until nobody is waiting any more, and then closes. Who connects
// between the last look and the close is still lost; only handing the listener over to a successor would mend that.
type emptyingListener struct {
	*net.TCPListener
	drain *drain
	stop  context.Context
	late  int // how many were accepted after the stop; the server calls Accept from one goroutine only
	looks int // how often in a row nobody was there
}

func (l *emptyingListener) Accept() (net.Conn, error) {
	for {
		stopping := l.stop.Err() != nil
		if stopping {
			l.SetDeadline(time.Now().Add(lull))
		}
		c, err := l.AcceptTCP()
		if err == nil {
			l.looks = 0
			if stopping {
				l.late++
			}
			if l.late == backlog {
				l.Close() // the next Accept tells the server
			}
			return &connection{TCPConn: c, drain: l.drain}, nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, err
		}
		if !stopping {
			continue // woken by the stop: the queue has not been looked at yet
		}
		// Twice, because a deadline that passes before Accept has begun, on a busy machine, makes it return without
		// a look at the queue.
		if l.looks++; l.looks == 2 {
			l.Close()
			return nil, net.ErrClosed
		}
	}
}
