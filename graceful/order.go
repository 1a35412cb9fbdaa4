package graceful

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/refusal"
)

// InOrder waits until ctx is stopped, usually the scope that the function given to [Run] receives,
// and then stops the stages one after another: each when the previous one has drained or has used
// its share of the time. It returns when all stages have drained, or when Work of ctx ends. A stage
// is a scope that the stop of ctx must not reach directly, so it derives from Work of ctx:
//
//	ingress, _ := ctxshutdown.WithCancel(s.Work(), ctxshutdown.WithName("ingress"))
//	storage, _ := ctxshutdown.WithCancel(s.Work(), ctxshutdown.WithName("storage"))
//	…
//	return graceful.InOrder(s, ingress, storage)
//
// The time is what remains of [Soft], including extensions, or 10 seconds from the stop if ctx does
// not derive from the scope of [Run]. The share of a stage is the time that remains at its turn,
// divided by the number of remaining stages, itself included. So time that a stage does not use
// goes to the following ones, and of n stages each has at least 1/n of the time. A stage that has
// not drained within its share continues to drain while the next one is stopped, until Work ends.
//
// The caller of InOrder must hold a guard, as the function given to [Run] does. Otherwise no guard
// might be held between two stages, and the scope would be complete.
//
// The error contains a [*ctxshutdown.DrainError] for each stage that has not drained. It also names
// each stage that was stopped together with ctx instead of in its turn. InOrder panics if a stage
// is nil.
func InOrder(ctx context.Context, stages ...*ctxshutdown.Swansong) error {
	if ctx == nil {
		panic("graceful: InOrder with a nil context")
	}
	for _, s := range stages {
		if s == nil {
			panic("graceful: InOrder with a nil stage; make one with ctxshutdown.WithCancel")
		}
	}
	budget := newBudget(ctx)
	defer budget.stop()
	<-ctx.Done()
	budget.begin()

	work := ctxshutdown.Work(ctx)
	var failure []error
	for _, s := range stages {
		if cause := context.Cause(s); cause != nil && cause != ctxshutdown.ErrShutdown && refusal.Equal(cause, context.Cause(ctx)) {
			failure = append(failure, fmt.Errorf("graceful: InOrder: %v was stopped together with its parent instead of in its turn; create it from the context Work() of its parent", s))
		}
	}
	for i, s := range stages {
		budget.wait(s.Shutdown(), len(stages)-i, work)
	}
	for _, s := range stages {
		c := s.Shutdown()
		select {
		case <-c.Done():
		case <-work.Done():
			if held := blockers(c, fmt.Errorf("graceful: InOrder: the time for the stages is over: %w", context.Cause(work))); held != nil {
				failure = append(failure, held)
			}
		}
	}
	return errors.Join(failure...)
}

// A budget is the time that the stages share.
type budget struct {
	p       *Process // nil if the context given to InOrder does not derive from the scope of Run
	end     time.Time
	changed chan struct{}
	stop    func()
}

func newBudget(ctx context.Context) *budget {
	b := &budget{changed: make(chan struct{}, 1), stop: func() {}}
	var ok bool
	if b.p, ok = FromContext(ctx); ok {
		b.stop = b.p.Watch(func(Status) {
			select {
			case b.changed <- struct{}{}:
			default:
			}
		})
	}
	return b
}

// begin starts to count the time of the budget. Run may not have begun the phase Soft yet. So begin
// estimates the end of the budget, and endsAt corrects it once Soft has begun.
func (b *budget) begin() {
	soft := defaultSoft
	if b.p != nil {
		soft = b.p.config.soft
	}
	b.end = time.Now().Add(soft)
}

// endsAt returns the time at which the budget ends.
func (b *budget) endsAt() time.Time {
	if b.p != nil {
		if now := b.p.current(); now.Phase == Soft {
			b.end = now.Until
		}
	}
	return b.end
}

// wait waits until a stage has drained, but no longer than the stage's share of the remaining time.
// The time is shared by the n stages that remain, including this one.
func (b *budget) wait(c *ctxshutdown.Completion, n int, work context.Context) {
	began := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		share := b.endsAt().Sub(began) / time.Duration(n)
		left := time.Until(began.Add(share))
		if left <= 0 {
			return
		}
		timer.Reset(left)
		select {
		case <-c.Done():
			return
		case <-work.Done():
			return
		case <-b.changed: // Extend may have moved the end of the budget, so compute the share again
		case <-timer.C:
		}
	}
}
