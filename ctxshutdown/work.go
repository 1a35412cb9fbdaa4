package ctxshutdown

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/internal/packed"
	"github.com/swansong-go/swansong/internal/scopekey"
)

// A work is the hard tier of one scope.
//
//	(none) ──first Work()──▶ alive ──Force here or above──▶ ended, cause: Force's
//	                           └─────scope complete───────▶ ended, cause: ErrShutdown
//
// It is not derived from the parent's: a parent that completes while a child runs on (a child of WithoutCancel) must
// not end the child's Work. Force finds it through the tree instead, where the first Work pins the scope.
type work struct {
	ctx    context.Context // the tier of the scope itself
	hard   context.Context // carries no values, so it answers for its own cancellation and for nothing else
	cancel context.CancelCauseFunc
	flags  flags       // raised before cancel is called; see look
	ready  atomic.Bool // registered with everything that may end it
}

func (w *work) end(cause error) {
	w.flags.raise()
	w.cancel(cause)
}

// Work returns the hard tier: a context with the values of s that outlives the stop. It ends when [Swansong.Force] is
// called on s or an ancestor, with that cause, or right after the completion of s, with [ErrShutdown]. Asked for after
// either, it is born ended, and once ended it stays so. It has no deadline of its own.
//
// Pass it to whatever must be seen through once begun, and hold a guard meanwhile.
func (s *Swansong) Work() context.Context {
	w := s.work.Load()
	if w == nil || !w.ready.Load() {
		w = s.startWork(w)
	}
	return w.ctx
}

func (s *Swansong) startWork(w *work) *work {
	if w == nil {
		s.from()
		hard, cancel := context.WithCancelCause(context.Background())
		w = &work{hard: hard, cancel: cancel}
		w.ctx = tier{values: s, work: w}
		if !s.work.CompareAndSwap(nil, w) {
			w = s.work.Load()
		}
	}
	// Published first, registered then: whatever ends Work from now on finds it, what happened before is found here.
	// A second caller does the same instead of waiting for the first, and may not return before it is done.
	s.node.Pin()
	if cause := s.forceCause(); cause != nil {
		w.end(cause)
	}
	s.observe()
	if s.node.Complete() {
		s.endWork()
	}
	w.ready.Store(true)
	return w
}

// endWork ends the Work of a scope that has completed.
func (s *Swansong) endWork() {
	if w := s.work.Load(); w != nil {
		cause := s.forceCause()
		if cause == nil {
			cause = ErrShutdown
		}
		w.end(cause)
	}
	s.node.Unpin()
}

// Force cuts the drain short: it cancels the Work of the whole subtree with cause, and implies Shutdown. On a running
// scope both tiers get the cause; on one that is stopped already, its own cause stays what it was. The first Force
// wins; nil means [ErrForced]. Guards still have to be released for the scope to complete.
func (s *Swansong) Force(cause error) *Completion {
	if cause == nil {
		cause = ErrForced
	}
	// Recorded before the soft tier ends: that may complete an idle scope at once, and its Work ends with this cause.
	// Where an ancestor was forced before, Work has ended by that, and asking makes its cause the one of s.
	s.forceCause()
	s.forced.CompareAndSwap(nil, &cause)
	s.stop(cause)
	s.node.Walk(func(o packed.Owner, _ int) {
		// One that was forced by itself before has its own cause, even if its Force has not come round to Work yet.
		below := scopeOf(o)
		if w := below.work.Load(); w != nil {
			w.end(below.forceCause())
		}
	})
	return s.completion()
}

// forceCause returns the cause of the Force that cut s short, nil if none did. What it finds above becomes that of s, or
// a Force of s at the same time could still record another one: it answers the same from then on.
func (s *Swansong) forceCause() error {
	if cause := s.forcedBy(); cause != nil {
		return *cause
	}
	return nil
}

func (s *Swansong) forcedBy() *error {
	if s == nil {
		return nil
	}
	if cause := s.forced.Load(); cause != nil {
		return cause
	}
	if above := s.up().forcedBy(); above != nil {
		s.forced.CompareAndSwap(nil, above)
	}
	return s.forced.Load()
}

// Work returns the hard tier for code that sees only a ctx: a context with the values of ctx and no deadline, that
// ends with [Swansong.Work] of the nearest scope in ctx. It is ctx itself when that carries no scope.
func Work(ctx context.Context) context.Context {
	s, ok := fromContext(ctx)
	if !ok {
		return ctx
	}
	if ctx == context.Context(s) {
		return s.Work()
	}
	s.Work()
	return tier{values: ctx, work: s.work.Load()}
}

// A tier is a context with the signal of one context and the values of another.
type tier struct {
	values context.Context
	work   *work
}

func (t tier) Deadline() (deadline time.Time, ok bool) { return }
func (t tier) Done() <-chan struct{}                   { return t.work.hard.Done() }
func (t tier) Err() error                              { return t.work.hard.Err() }
func (t tier) String() string                          { return contextName(t.values) + ".Work" }

// Value lets package context find the context behind Done, so that deriving from a tier takes no goroutine and
// Cause is right.
func (t tier) Value(key any) any {
	if key == (scopekey.Soft{}) {
		return (*Swansong)(nil) // not nil: who looks in one context and then in another must not go on to the other
	}
	if v := t.work.hard.Value(key); v != nil {
		return v
	}
	return t.values.Value(key)
}
