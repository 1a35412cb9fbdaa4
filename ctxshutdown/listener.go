package ctxshutdown

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
)

// NewListener returns a listener that ends with ctx: the stop closes ln, which wakes Accept, and Accept returns an
// error that matches [net.ErrClosed]. A connection that is accepted while ctx ends is returned, not dropped. Close
// closes ln, once; where the stop has closed it, and when called again, Close returns nil.
//
// With [Guarded], the guard is held until ln is closed. NewListener panics if ctx or ln is nil.
func NewListener(ctx context.Context, ln net.Listener, opts ...InterruptOption) net.Listener {
	if ln == nil {
		panic("ctxshutdown: NewListener of a nil net.Listener")
	}
	l := &listener{Listener: ln, look: lookAt(ctx)}
	l.holder.hold(ctx, interruptOptionsOf(opts))
	l.undo = context.AfterFunc(l.ctx, l.stop)
	return l
}

type listener struct {
	net.Listener
	look
	undo   func() bool
	holder holder
	once   sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	if l.look.ended() {
		l.stop() // its own goroutine may not have come to it yet
		return nil, l.ended(net.ErrClosed)
	}
	c, err := l.Listener.Accept()
	if err != nil && l.look.ended() && !errors.Is(err, net.ErrClosed) {
		err = l.ended(fmt.Errorf("%w (%w)", net.ErrClosed, err)) // listeners have many words for it
	}
	return c, err
}

func (l *listener) ended(err error) error {
	e := &net.OpError{Op: "accept", Addr: l.Addr(), Err: err}
	if e.Addr != nil {
		e.Net = e.Addr.Network()
	}
	return e
}

func (l *listener) stop() { _ = l.close() }

func (l *listener) close() (err error) {
	l.once.Do(func() {
		err = l.Listener.Close()
		l.holder.letGo()
	})
	return err
}

func (l *listener) Close() error {
	l.undo()
	return l.close()
}
