package ctxshutdown

// Scopes: the hard context, and Force.
//
// See docs/internals/core.md#semantic-5.

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/internal/ctxkey"
	"github.com/swansong-go/swansong/internal/packed"
)

// work is the hard context of one scope.
//
//	(none) ──first Work()──▶ alive ──Force here or above──▶ ended, with the cause of Force
//	                           └─────scope complete───────▶ ended, with ErrShutdown
//
// It does not derive from the hard context of the parent scope: the parent can complete while a
// child made from context.WithoutCancel keeps running, and must not end the child's Work. Force
// finds the hard contexts of descendants through the tree. The first Work therefore pins the node,
// which keeps it in the child list of its parent without a guard.
type work struct {
	ctx        context.Context // returned by Work; ends with the context hard, and has the values of the scope
	hard       context.Context // ends when the Work ends, and carries no values
	cancel     context.CancelCauseFunc
	registered atomic.Bool // set once Force, the completion of the scope and the end of the parent context can end this Work; see registerWork
}

// Work returns the hard context of the scope: a context with the values of s that outlives the
// stop. It ends when [Swansong.Force] is called on s or an ancestor, with the cause of Force, or
// right after s has completed, with [ErrShutdown]. If either has happened before the first call of
// Work, the context has ended from the start, even if a late guard is held. A Work that has ended
// never starts again. It has no deadline.
//
// Pass it to functions that must finish what they have begun, and hold a guard while they run.
func (s *Swansong) Work() context.Context {
	s.mustNotBeNil()
	w := s.work.Load()
	if w == nil || !w.registered.Load() {
		w = s.registerWork(w)
	}
	return w.ctx
}

// registerWork creates the hard context if w is nil. When it returns, Force, the completion of the
// scope and the end of the parent context can find the hard context and end it.
func (s *Swansong) registerWork(w *work) *work {
	if w == nil {
		s.parentContext()
		hard, cancel := context.WithCancelCause(context.Background())
		w = &work{hard: hard, cancel: cancel}
		w.ctx = workContext{values: s, work: w}
		if !s.work.CompareAndSwap(nil, w) {
			w = s.work.Load()
		}
	}
	// The work is stored in s before these checks. A later Force or completion finds the work there
	// and ends it. An earlier Force or completion is found by the checks. Another goroutine that
	// calls Work at the same time makes the same checks instead of waiting, because it must not
	// return before they are made.
	s.node.Pin()
	if cause := s.forceCause(); cause != nil {
		w.cancel(cause)
	}
	s.watchContext()
	// If the stop of a scope above s also ends s, then s was complete when that scope was complete.
	// The node of s may not have recorded this: if s was not used between the stop and a late
	// guard, the node learns of the stop only now. So check the scopes above, too. The causes tell
	// whether the stop of a scope has ended the parent context of the scope below: it has not if
	// there is a context.WithoutCancel in between.
	for up, below := s, s; up != nil && s.Err() != nil && (up == s || isSameCause(context.Cause(below.parent), context.Cause(up))); up, below = up.stoppedWith(), up {
		if up.node.HasCompleted() {
			s.cancelWork()
		}
	}
	w.registered.Store(true)
	return w
}

// cancelWork ends the hard context of a scope that has completed.
func (s *Swansong) cancelWork() {
	if w := s.work.Load(); w != nil {
		w.cancel(cmp.Or(s.forceCause(), ErrShutdown))
	}
	s.node.Unpin()
}

// Force cuts the drain short: it cancels the [Swansong.Work] of the scope and of all descendants
// with cause, and implies [Swansong.Shutdown]. If the scope was running, cause is also the cause of
// its stop. If the scope was stopped, the cause of that stop remains. The first Force wins; a nil
// cause means [ErrForced].
//
// Force does not release guards: the scope is complete when its guards have been released.
func (s *Swansong) Force(cause error) *Completion {
	cause = cmp.Or(cause, ErrForced)
	// Store the cause before the context is cancelled: the cancellation can complete an idle scope
	// at once, and the Work of that scope must end with this cause. Call forceCause before that: if
	// an ancestor was forced earlier, it stores the cause of the ancestor in s.
	s.mustNotBeNil()
	s.forceCause()
	s.forced.CompareAndSwap(nil, &cause)
	s.stop(cause)
	// Work is cancelled in the whole tree below, also in scopes that the stop has not reached, such
	// as a child of context.WithoutCancel.
	s.node.Walk(func(o packed.Owner, _ int) {
		// A descendant that was forced earlier keeps its own cause.
		below := scopeOf(o)
		if w := below.work.Load(); w != nil {
			w.cancel(below.forceCause())
		}
	})
	return s.completion()
}

// forceCause returns the cause with which Force was called on s or an ancestor, or nil. Once
// forceCause has returned a cause, it always returns the same cause.
func (s *Swansong) forceCause() error {
	if cause := s.forced.Load(); cause != nil {
		return *cause
	}
	if up := s.parentScope(); up != nil {
		if cause := up.forceCause(); cause != nil {
			// Store the cause of the ancestor in s, because a concurrent Force of s could store a
			// different one later.
			s.forced.CompareAndSwap(nil, &cause)
			return *s.forced.Load()
		}
	}
	return nil
}

// Work returns the hard context for code that has only ctx: a context with the values of ctx and
// without a deadline, which ends with [Swansong.Work] of the nearest scope in ctx. It returns ctx
// if ctx carries no scope, and panics if ctx is nil.
func Work(ctx context.Context) context.Context {
	s, ok := FromContext(ctx)
	if !ok {
		return ctx
	}
	s.Work() // the first call of Work sets s.work
	return workContext{values: ctx, work: s.work.Load()}
}

// workContext is a context that ends with a work and has the values of another context.
type workContext struct {
	values context.Context
	work   *work
}

func (c workContext) Deadline() (deadline time.Time, ok bool) { return }
func (c workContext) Done() <-chan struct{}                   { return c.work.hard.Done() }
func (c workContext) Err() error                              { return c.work.hard.Err() }
func (c workContext) String() string                          { return contextName(c.values) + ".Work" }

// Value asks the hard context first, so that package context finds the standard context that Done
// belongs to. Then context.Cause returns the right cause, and deriving a context starts no
// goroutine.
func (c workContext) Value(key any) any {
	if key == (ctxkey.SoftScope{}) {
		// Return a nil *Swansong and not a nil interface. A context that merges the values of
		// several contexts would take a nil interface for a missing value, and ask the next
		// context, which may belong to a scope.
		return (*Swansong)(nil)
	}
	if v := c.work.hard.Value(key); v != nil {
		return v
	}
	return c.values.Value(key)
}
