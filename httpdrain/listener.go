package httpdrain

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

const (
	// lull is how long nobody may connect before the listener counts as empty, and how long a last look at a socket takes.
	lull = time.Millisecond
	// backlog bounds what is accepted after the stop where people never cease to connect. It is as long as the kernel's
	// queue gets by default, so that whoever was in it is served. A time would not do: a process that is kept from
	// running for that long would close a full queue.
	backlog = 4096
)

// A listener goes on accepting after the stop until nobody is waiting any more, and then closes. So it does where it was
// inherited, and others have it, too (LISTEN_FDS), although whoever waits there would wait for them: nobody can tell from
// a socket whether one of them accepts, or ever will. In a roll another one does; when all of a service is stopped, nobody
// does, and leaving at once would lose those in the queue. Where people never cease to connect this takes longer, as backlog
// has it, and loses nobody.
//
// The server calls Accept from one goroutine only.
type listener struct {
	net.Listener
	drain *drain
	stop  context.Context
	late  int // how many were accepted after the stop
	looks int // how often in a row nobody was there

	mu       sync.Mutex
	deadline func(time.Time) error // nil where the listener has none: then timer closes it
	timer    *time.Timer
	closed   bool
	closeErr error
	failed   error // what ended the accepting after the stop, where it was not we
}

func newListener(ln net.Listener, d *drain, stop context.Context) *listener {
	l := &listener{Listener: ln, drain: d, stop: stop}
	if dl, ok := ln.(interface{ SetDeadline(time.Time) error }); ok {
		l.deadline = dl.SetDeadline
	}
	return l
}

// hurry gives Accept, now or when it is called next, a lull for somebody to come.
func (l *listener) hurry() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	if l.deadline != nil {
		if l.deadline(time.Now().Add(lull)) == nil {
			return
		}
		l.deadline = nil // it has the method, and not what it does
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(2*lull, func() { l.Close() })
	} else {
		l.timer.Reset(2 * lull)
	}
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		stopping := l.stop.Err() != nil
		if stopping {
			l.hurry()
		}
		nc, err := l.Listener.Accept()
		switch {
		case err == nil:
			return l.accepted(nc, stopping)
		case l.stop.Err() == nil:
			return nil, err
		case errors.Is(err, os.ErrDeadlineExceeded):
			if !stopping {
				continue // woken by the stop: the queue has not been looked at yet
			}
			// Twice, because a deadline that passes before Accept has begun, on a busy machine, makes it return without
			// a look at the queue.
			if l.looks++; l.looks < 2 || waiting(l.Listener) {
				continue
			}
		case !l.isClosed() && !errors.Is(err, net.ErrClosed):
			// Not to the server, which sleeps up to a second where it believes that the error will pass.
			l.mu.Lock()
			l.failed = fmt.Errorf("httpdrain: the listener on %v failed while the server drained, and whoever was waiting to be accepted is lost: %w", l.Addr(), err)
			l.mu.Unlock()
		}
		l.Close()
		return nil, net.ErrClosed
	}
}

func (l *listener) accepted(nc net.Conn, stopping bool) (net.Conn, error) {
	if tc, ok := nc.(*tls.Conn); ok {
		// The server has to see a *tls.Conn to speak HTTP/2, so it cannot be wrapped; and unwrapped, nobody would know
		// when a hijacked one ends, or whether a request has begun.
		tc.NetConn().Close()
		return nil, errTLSListener(l.Listener)
	}
	l.looks = 0
	if stopping {
		l.late++
	}
	if l.late == backlog {
		l.Close() // the next Accept tells the server
	}
	_, own := l.Listener.(*net.TCPListener)
	return l.drain.add(nc, own), nil
}

func errTLSListener(ln net.Listener) error {
	return fmt.Errorf("httpdrain: Serve was given %T, a TLS listener, and cannot see the connections below it: "+
		"give ServeTLS the listener that it wraps, and the server its TLSConfig", ln)
}

// Close closes the listener once, whoever calls it.
func (l *listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		if l.timer != nil {
			l.timer.Stop()
		}
		l.closeErr = l.Listener.Close()
	}
	return l.closeErr
}

func (l *listener) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

func (l *listener) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}
