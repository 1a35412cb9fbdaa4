package ctxshutdown

// Scopes: the standard context of a scope, and the steps of a stop.
//
//	               Done, or an Err that is not nil
//	no context ──────────────────────────────────────▶ derived ──stop, or end of the parent──▶ ended
//	    │
//	    └──stop──▶ created cancelled
//
// A stop has three steps, in this order:
//
//  1. Warn marks the nodes of the subtree, so that TryGuard asks the context from now on.
//  2. The context is cancelled. When the call returns, all standard contexts below have ended.
//  3. Stop seals the nodes of the subtree, and completes those that have no guards.
//
// With 2 before 1, TryGuard could succeed after Done is closed. With 3 before 2, a scope could be
// complete while TryGuard of a child still succeeds. If a context above the scope ends, package
// context does step 2 without a call of this package. syncTree then does step 3, as soon as the
// scope is asked for its state or an AfterFunc runs. See
// docs/internals/counting.md#signalled-and-sealed.

import (
	"context"
	"errors"
)

var (
	// ErrShutdown is the cause of a stop by [Swansong.Shutdown] or a cancel function, and of the
	// end of [Swansong.Work] when its scope completes.
	ErrShutdown = errors.New("ctxshutdown: shut down")
	// ErrForced is the cause that [Swansong.Force] uses if it is called with a nil cause.
	ErrForced = errors.New("ctxshutdown: forced")
)

// stdContext is the standard context behind Done, Err and Cause of a scope. Deriving one costs as
// much as context.WithCancel, most of it for registering with the parent. So a scope gets one only
// when something waits for the scope or the scope ends.
type stdContext struct {
	ctx    context.Context
	cancel context.CancelCauseFunc // cancels ctx; nil if ctx was created cancelled
}

// isDerived reports whether ctx derives from the parent context. A scope that is stopped before its
// context is needed gets a context that is cancelled from the start. That context does not derive
// from the parent context and does not carry its values.
func (c *stdContext) isDerived() bool { return c.cancel != nil }

// stoppedContext is shared by all scopes that were stopped with ErrShutdown before their context
// was needed. Its Done channel is closed from the start.
var stoppedContext = newCanceled(ErrShutdown)

// newCanceled returns a context that is cancelled from the start with the given cause.
func newCanceled(cause error) *stdContext {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	return &stdContext{ctx: ctx}
}

// derive returns the standard context of the scope. The first call creates it.
func (s *Swansong) derive() *stdContext {
	s.mustNotBeNil()
	if c := s.std.Load(); c != nil {
		return c
	}
	ctx, cancel := context.WithCancelCause(s.parentContext())
	c := &stdContext{ctx: ctx, cancel: cancel}
	if !s.std.CompareAndSwap(nil, c) {
		cancel(nil) // otherwise the unused ctx would stay registered with the parent context
		return s.std.Load()
	}
	return c
}

// cancelContext cancels the context of the scope with cause, unless that context has ended already.
// When cancelContext returns, every standard context that derives from the scope has ended.
func (s *Swansong) cancelContext(cause error) {
	s.node.Warn()
	c := s.std.Load()
	if c == nil && s.parentContext().Err() == nil {
		c = stoppedContext
		if cause != ErrShutdown {
			c = newCanceled(cause)
		}
		if s.std.CompareAndSwap(nil, c) {
			return
		}
	}
	if c = s.derive(); c.isDerived() {
		c.cancel(cause)
	}
}

// stop tells the scope to stop: first it cancels the context of the scope, then it stops the node,
// which counts the guards.
func (s *Swansong) stop(cause error) {
	s.mustNotBeNil()
	if s.trace != nil {
		s.trace.stopped.Store(true)
	}
	if unregister := s.stopAfterFunc.Swap(nil); unregister != nil {
		// Unregister syncTree: otherwise the end of the context would start a goroutine that stops
		// the scope once more.
		(*unregister)()
	}
	s.cancelContext(cause)
	s.node.Stop()
}

// syncTree stops the node (the counter of guards) of a scope whose context has ended. The context
// may have ended because a context above it ended, without a call of this package.
//
// Package context sets Err and starts AfterFunc goroutines before it has cancelled all derived
// contexts. If the node were stopped at that moment, the scope could complete before the derived
// contexts are cancelled. So syncTree cancels the context once more: that call returns only when
// all derived contexts are cancelled.
func (s *Swansong) syncTree() {
	if s.node.IsSignalled() {
		return
	}
	if c := s.derive(); c.isDerived() {
		c.cancel(nil)
	}
	s.node.Stop()
}

// watchContext makes sure that the node (the counter of guards) is stopped when the context of the
// scope ends. If the context has ended already, watchContext stops the node at once. If the parent
// context is never done, only the method stop can end the context of the scope, and that method
// stops the node itself.
func (s *Swansong) watchContext() {
	if s.Err() != nil {
		s.syncTree()
		return
	}
	if s.stopAfterFunc.Load() != nil || s.parent.Done() == nil {
		return
	}
	unregister := context.AfterFunc(s.derive().ctx, s.syncTree)
	if !s.stopAfterFunc.CompareAndSwap(nil, &unregister) {
		unregister()
	}
}
