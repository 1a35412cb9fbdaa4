package ctxshutdown

// Interrupts: listeners.
//
// A blocked Accept can only be woken by closing the listener. A function registered by
// context.AfterFunc does that. Package context calls such functions a moment after the context is
// done, but code that has seen the end of the context must find the port closed. So Accept checks
// the context as well, and closes the listener itself.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
)

// NewListener returns a listener that ends with ctx. When ctx ends, ln is closed, which wakes
// Accept, and Accept returns an error that matches [net.ErrClosed]. A connection that is accepted
// while ctx ends is returned. Close closes ln once; it returns nil if ln was closed before, by ctx
// or by Close.
//
// With the option [Guarded], the guard is held until ln is closed. NewListener panics if ctx or ln
// is nil.
func NewListener(ctx context.Context, ln net.Listener, opts ...InterruptOption) net.Listener {
	panicIf(ln == nil, "ctxshutdown: NewListener of a nil net.Listener")
	checkContext(ctx)
	l := &listener{Listener: ln, ctx: ctx}
	l.guard.acquire(ctx, newInterruptOptions(opts))
	l.unregister = context.AfterFunc(l.ctx, func() { _ = l.closeOnce() })
	return l
}

// listener is a net.Listener that is closed once, by Close or by the end of its context.
type listener struct {
	net.Listener
	ctx        context.Context
	unregister func() bool // ends the registration of the function that closes the listener
	guard      guardSlot
	once       sync.Once
}

// Accept returns the next connection, even if the context has ended while the connection was being
// accepted. A connection that Accept dropped would be reset, and its client would lose a request.
func (l *listener) Accept() (net.Conn, error) {
	if l.ctx.Err() != nil {
		// The AfterFunc closes the listener, too, but may run later.
		_ = l.closeOnce()
		return nil, fmt.Errorf("accept on %v: %w", l.Addr(), net.ErrClosed)
	}
	c, err := l.Listener.Accept()
	if err != nil && l.ctx.Err() != nil && !errors.Is(err, net.ErrClosed) {
		// Listeners return different errors after Close. Wrap the error, so that it also matches
		// net.ErrClosed.
		err = fmt.Errorf("%w: %w", net.ErrClosed, err)
	}
	return c, err
}

// closeOnce closes the underlying listener and releases the guard, in the first call only. Later
// calls return nil.
func (l *listener) closeOnce() (err error) {
	l.once.Do(func() {
		err = l.Listener.Close()
		l.guard.release()
	})
	return err
}

// Close closes the underlying listener. The second Close, and a Close after the stop, return nil.
func (l *listener) Close() error {
	l.unregister()
	return l.closeOnce()
}
