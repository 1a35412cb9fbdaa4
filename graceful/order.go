package graceful

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/refusal"
)

// InOrder waits until ctx, usually the scope that f was given, is told to stop, and then stops the stages one after
// another, each when the one before it has drained or has had its share of the time. It returns when all of them have
// drained, or when Work of ctx ends. Stages are scopes of their own, which the stop of ctx must not reach by itself; they
// derive from its Work:
//
//	ingress, _ := ctxshutdown.WithCancel(s.Work(), ctxshutdown.WithName("ingress"))
//	storage, _ := ctxshutdown.WithCancel(s.Work(), ctxshutdown.WithName("storage"))
//	…
//	return graceful.InOrder(s, ingress, storage)
//
// The time is what is left of [Soft], extensions included; 10 seconds from the stop where ctx does not come from [Run].
// A stage's share of it is what is left when its turn comes, divided by the number of stages whose turn has not passed,
// its own included. So time that is not used goes to those who follow, and of a budget B for n stages each has B/n at
// least. A stage that does not drain in its share is not cut short for that: the next one is told to stop beside it, and
// it has until Work ends, like everybody else.
//
// Whoever calls InOrder holds a guard, as f does anyway, or there might be none between two stages, which ends Work.
//
// The error names the stages that have not drained, each by a [*ctxshutdown.DrainError]. It also names a stage that was
// stopped together with ctx, out of turn. A nil stage panics.
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
		if cause := context.Cause(s); cause != nil && cause != ctxshutdown.ErrShutdown && refusal.Same(cause, context.Cause(ctx)) {
			failure = append(failure, fmt.Errorf("graceful: InOrder: %v was stopped together with its parent, out of turn: derive it from Work", s))
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
			if held := blockers(c, fmt.Errorf("graceful: InOrder: out of time: %w", context.Cause(work))); held != nil {
				failure = append(failure, held)
			}
		}
	}
	return errors.Join(failure...)
}

// A budget is the time that stages share.
type budget struct {
	p       *Process // nil: there is none
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

// begin starts the time, for now: the ladder may not know yet that somebody has told its scope to stop.
func (b *budget) begin() {
	soft := defaultSoft
	if b.p != nil {
		soft = b.p.config.soft
	}
	b.end = time.Now().Add(soft)
}

// until returns the end of the budget as it is now.
func (b *budget) until() time.Time {
	if b.p != nil {
		if st := b.p.Status(); st.Rung == Soft {
			b.end = st.Until
		}
	}
	return b.end
}

// wait waits for a stage, which is the first of n whose turn has not passed, for its share at most.
func (b *budget) wait(c *ctxshutdown.Completion, n int, work context.Context) {
	began := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		share := b.until().Sub(began) / time.Duration(n)
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
		case <-b.changed: // an extension, maybe
		case <-timer.C:
		}
	}
}
