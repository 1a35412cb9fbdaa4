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
	// lull is how long nobody may connect before the listener counts as empty, and rush how long that may take.
	lull = time.Millisecond
	rush = 100 * time.Millisecond
)

// serve serves until s is told to stop, and returns when every connection has ended. The order is what loses nothing:
//
//  1. Accept what is in the kernel's queue, then close the listener: whoever has connected is served.
//  2. Say Connection: close in every response from now on, and keep answering. (http.Server.Shutdown closes idle
//     connections here, with the next request already in the socket.)
//  3. Close a connection once it has been quiet for the linger.
func serve(s *ctxshutdown.Swansong, ln net.Listener, handler http.Handler) error {
	d := &drain{conns: map[net.Conn]*connection{}, changed: make(chan struct{}, 1)}
	srv := &http.Server{
		BaseContext: s.BaseContext, // the hard tier: a request in flight is not cancelled by the stop
		ConnState:   d.connState,
		Handler:     d.guarded(handler),
	}
	el := &emptyingListener{TCPListener: ln.(*net.TCPListener), stop: s}
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
	closing atomic.Bool

	mu      sync.Mutex
	conns   map[net.Conn]*connection
	changed chan struct{} // a connection is quiet, or gone
}

type connection struct {
	quiet time.Time // since when; zero while a request is being served
}

// connState is called by the server, one connection at a time, whenever a request begins or ends.
func (d *drain) connState(c net.Conn, state http.ConnState) {
	d.mu.Lock()
	switch state {
	case http.StateNew, http.StateIdle:
		d.conns[c] = &connection{quiet: time.Now()}
	case http.StateActive:
		d.conns[c] = &connection{}
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
	next = linger
	for c, conn := range d.conns {
		if conn.quiet.IsZero() {
			continue
		}
		if conn.quiet.Before(began) {
			conn.quiet = began
		}
		if wait := linger - time.Since(conn.quiet); wait > 0 {
			next = min(next, wait)
			continue
		}
		c.Close() // the server sees it and reports StateClosed
	}
	return next, len(d.conns) > 0
}

// An emptyingListener goes on accepting after the stop until nobody is waiting any more, and then closes.
type emptyingListener struct {
	*net.TCPListener
	stop  context.Context
	until time.Time // the end of the rush; the server calls Accept from one goroutine only
}

func (l *emptyingListener) Accept() (net.Conn, error) {
	stopping := l.stop.Err() != nil
	if stopping {
		if l.until.IsZero() {
			l.until = time.Now().Add(rush)
		}
		deadline := time.Now().Add(lull)
		if deadline.After(l.until) {
			deadline = l.until
		}
		l.SetDeadline(deadline)
	}
	c, err := l.TCPListener.Accept()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if !stopping {
			return l.Accept() // woken by the stop: the queue has not been looked at yet
		}
		l.Close()
		err = net.ErrClosed
	}
	return c, err
}
