package ctxshutdown

import (
	"context"
	"errors"
	"sync/atomic"
)

var (
	// ErrShutdown is the cause of a stop by [Swansong.Shutdown], a cancel function, or a scope that completed.
	ErrShutdown = errors.New("ctxshutdown: shut down")
	// ErrForced is the cause of [Swansong.Force] where none is given.
	ErrForced = errors.New("ctxshutdown: forced")
)

// A signal is the standard context behind a scope's Done, Err and Cause. Deriving it costs what context.WithCancel
// costs, most of it for a place in the parent's list of children; so a scope that nobody waits on has none.
type signal struct {
	ctx    context.Context
	cancel context.CancelCauseFunc // nil where detached
	flags  atomic.Pointer[flags]   // nil until somebody looks at the scope, or below, or ends it; see look
}

// detached reports whether the scope was stopped before anybody waited, so that ctx never joined the parent context and does
// not carry its values.
func (g *signal) detached() bool { return g.cancel == nil }

// end gives the signal, if it has not been given.
func (g *signal) end(cause error) {
	if !g.detached() {
		g.warn()
		g.cancel(cause)
	}
}

// shutDown is the signal of all scopes that were stopped before anybody waited on them. It never had an open channel.
var shutDown = endedBy(ErrShutdown)

func endedBy(cause error) *signal {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	g := &signal{ctx: ctx}
	g.flags.Store(over)
	return g
}

// wire gives the scope a context of its own, if it has none.
func (s *Swansong) wire() *signal {
	if g := s.signal.Load(); g != nil {
		return g
	}
	ctx, cancel := context.WithCancelCause(s.from())
	g := &signal{ctx: ctx, cancel: cancel}
	if !s.signal.CompareAndSwap(nil, g) {
		cancel(nil) // leaves the parent's list
		return s.signal.Load()
	}
	return g
}

// pull asks the parent context on behalf of a scope without one of its own. An error is latched by wiring: else a
// later Shutdown would replace the cause that somebody has seen.
func (s *Swansong) pull() error {
	if s.from().Err() == nil {
		return nil
	}
	if p, ok := s.parent.(*Swansong); ok {
		// p has latched its signal too, and what has ended can be shared, values and all.
		s.signal.CompareAndSwap(nil, p.signal.Load())
	}
	return s.wire().ctx.Err()
}

// end gives the signal. The first cause wins. When it returns, everything below that derives from here has it.
func (s *Swansong) end(cause error) {
	s.node.Warn()
	g := s.signal.Load()
	if g == nil && s.from().Err() == nil {
		g = shutDown
		if cause != ErrShutdown {
			g = endedBy(cause)
		}
		if s.signal.CompareAndSwap(nil, g) {
			return
		}
	}
	s.wire().end(cause)
}

// stop tells the scope to stop: first the signal, then the tree.
func (s *Swansong) stop(cause error) {
	if s.trace != nil {
		s.trace.stopped.Store(true)
	}
	if undo := s.watch.Swap(nil); undo != nil {
		(*undo)() // what it would do in a goroutine of its own is done here
	}
	s.end(cause)
	s.node.Stop()
}

// settle brings the tree up to date with a signal that may have come from above, without any of our code running.
// Err is set, and AfterFunc goroutines run, while package context is still cancelling the children; a scope that
// completed in between would complete before they are told. Cancelling an ended context waits for that cascade.
func (s *Swansong) settle() {
	if s.node.Signalled() {
		return
	}
	s.wire().end(nil)
	s.node.Stop()
}

// observe settles a scope that has been signalled, and has a running one settle when it is.
func (s *Swansong) observe() {
	if s.Err() != nil {
		s.settle()
		return
	}
	if s.watch.Load() != nil {
		return
	}
	g := s.wire()
	undo := context.AfterFunc(g.ctx, s.settle)
	if !s.watch.CompareAndSwap(nil, &undo) {
		undo()
	}
}
