package httpdrain

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"sync"
	"time"

	"github.com/swansong-go/swansong/httpdrain/internal/socket"
)

const (
	// lull is the time without a new connection after which the accept queue counts as empty. It is
	// also how long the drain waits for data on a connection whose socket it cannot examine, before
	// it closes the connection.
	lull = time.Millisecond
	// silentTimeout is how long the drain waits for an Accept that does not return although a
	// deadline has been set, because it waits for something else than a connection, say. Then the
	// drain closes the listener.
	silentTimeout = time.Second
	// starvedTimeout takes the place of silentTimeout for listeners of package net. Their Accept
	// returns at the deadline as soon as its goroutine runs. On a busy machine, that may take more
	// than a second, for example while a hundred other goroutines compute the signatures of TLS
	// handshakes.
	starvedTimeout = 10 * time.Second
	// maxLateConns limits how many connections are accepted after the scope has been stopped, in
	// case clients connect all the time: after that number the listener closes as soon as its queue
	// is empty, without a lull, and after twice that number in any case. It is the kernel's default
	// limit for the accept queue, so that all connections that were in the queue are accepted. A
	// time limit would not ensure that: a process that was suspended for longer than the limit
	// would close a full queue.
	maxLateConns = 4096
)

// A listener accepts connections after the scope has been stopped until the accept queue is empty,
// and then closes.
//
// It does so even if it was inherited (LISTEN_FDS) and another process, which has inherited it,
// too, could accept the connections in the queue. A process cannot learn from a socket whether
// another process accepts from it. When a service is replaced, another process does. When the
// service is stopped, none does, and closing the listener at once would lose the connections in the
// queue. If clients connect all the time, maxLateConns limits how long the listener stays open.
// Even then, no connection is lost that was in the queue when the scope was stopped.
//
// The server calls Accept from one goroutine only.
type listener struct {
	net.Listener
	queue    net.Listener // the listener that has the accept queue: the one inside a TLS listener, otherwise the embedded Listener itself
	drain    *drain
	stop     context.Context
	late     int // number of connections accepted after the stop
	timeouts int // number of consecutive timeouts of Accept after the stop

	mu          sync.Mutex
	setDeadline func(time.Time) error // the method SetDeadline of queue; nil if queue has none, or has one without effect
	timer       *time.Timer           // closes the listener if Accept does not return although its deadline has passed
	interval    time.Duration         // the duration with which the field timer is set
	steps       int                   // how many times more the field timer must expire before the listener is closed
	accepting   bool                  // whether the server is calling Accept
	closed      bool
	closeErr    error
	acceptErr   error // why Accept of queue failed after the stop; nil if it failed because the listener was closed
}

func newListener(ln net.Listener, d *drain, stop context.Context) *listener {
	l := &listener{Listener: ln, queue: withoutTLS(ln), drain: d, stop: stop}
	if dl, ok := l.queue.(interface{ SetDeadline(time.Time) error }); ok {
		l.setDeadline = dl.SetDeadline
	}
	return l
}

// tlsListener is the type of the listeners of [tls.NewListener]. They have no method SetDeadline,
// but embed the listener that they were made from.
var tlsListener = reflect.TypeOf(tls.NewListener(nil, nil))

// withoutTLS returns the listener from which ln was made, if ln is one of [tls.NewListener], and
// otherwise ln. The name of the field is not part of the API of Go. If a release renames it,
// withoutTLS returns ln, and TestServe_ServesConnectionsThatWaitForAcceptOfTLSListener fails.
func withoutTLS(ln net.Listener) net.Listener {
	if reflect.TypeOf(ln) == tlsListener {
		if f := reflect.ValueOf(ln).Elem().FieldByName("Listener"); f.IsValid() {
			if inner, ok := f.Interface().(net.Listener); ok {
				return inner
			}
		}
	}
	return ln
}

// limitAccept makes the current or next call of Accept return if no client connects for the time
// lull.
func (l *listener) limitAccept() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	wait := 2 * lull
	if l.setDeadline != nil {
		if l.setDeadline(time.Now().Add(lull)) == nil {
			if wait = silentTimeout; isOfPackageNet(l.queue) {
				wait = starvedTimeout
			}
		} else {
			l.setDeadline = nil // SetDeadline has failed, so the listener does not support deadlines
		}
	}
	l.steps, l.interval = waitSteps, wait/waitSteps
	if l.timer == nil {
		l.timer = time.AfterFunc(l.interval, l.onTimer)
	} else {
		l.timer.Reset(l.interval)
	}
}

func (l *listener) setAccepting(is bool) {
	l.mu.Lock()
	l.accepting = is
	l.mu.Unlock()
}

// isOfPackageNet reports whether ln is a listener of package net. It is false if the type of ln
// embeds one: such a type may have an Accept of its own, which waits for something else before it
// accepts.
func isOfPackageNet(ln net.Listener) bool {
	switch ln.(type) {
	case *net.TCPListener, *net.UnixListener:
		return true
	}
	return false
}

// onTimer closes the listener when the timer has expired waitSteps times during one call of Accept.
// See waitSteps for why the timer expires more than once. If the timer expires between two calls of
// Accept, onTimer does not close the listener, because the queue may contain connections. The next
// call of Accept starts the timer anew.
func (l *listener) onTimer() {
	l.mu.Lock()
	l.steps--
	expired := l.accepting && l.steps <= 0
	if l.accepting && !expired {
		l.timer.Reset(l.interval)
	}
	l.mu.Unlock()
	if expired {
		l.Close()
	}
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		l.setAccepting(true)
		// Look for a stop only after setAccepting. In the other order, the drain could start the
		// timer between the two calls, and the timer could end before Accept is called. Then
		// nothing would limit Accept.
		stopping := l.stop.Err() != nil
		if stopping {
			l.limitAccept()
		}
		nc, err := l.Listener.Accept()
		l.setAccepting(false)
		switch {
		case err == nil:
			return l.accept(nc, stopping), nil
		case l.stop.Err() == nil:
			return nil, err
		case errors.Is(err, os.ErrDeadlineExceeded):
			if !stopping {
				continue // this call began before the stop, so the queue might not be empty
			}
			// One timeout does not show that the queue is empty: on a busy machine a deadline may
			// pass before Accept has begun, and then Accept returns without looking at the queue.
			if l.timeouts++; l.timeouts < 2 || socket.HasQueued(l.queue) {
				continue
			}
		case !l.isClosed() && !errors.Is(err, net.ErrClosed):
			// If Accept returned a temporary error, the server would sleep for up to a second. So
			// Accept returns net.ErrClosed instead.
			l.mu.Lock()
			l.acceptErr = fmt.Errorf("httpdrain: the listener on %v failed after the stop, "+
				"so connections in the accept queue were lost: %w", l.Addr(), err)
			l.mu.Unlock()
		}
		l.Close()
		return nil, net.ErrClosed
	}
}

func (l *listener) accept(nc net.Conn, stopping bool) net.Conn {
	l.timeouts = 0
	if stopping {
		l.late++
	}
	if l.late >= maxLateConns && (l.late >= 2*maxLateConns || !socket.HasQueued(l.queue)) {
		l.Close() // makes the next Accept return net.ErrClosed
	}
	_, isNetListener := l.Listener.(*net.TCPListener)
	return l.drain.add(nc, isNetListener)
}

// Close closes the listener. All calls return the result of the first one.
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

// failure returns the error that ended Accept after the stop, or nil.
func (l *listener) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acceptErr
}
