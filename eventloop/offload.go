package eventloop

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// ErrOffloadTimeout is what the completion of an offload gets whose time ran out. It is a context.DeadlineExceeded.
var ErrOffloadTimeout = fmt.Errorf("eventloop: the offload took too long: %w", context.DeadlineExceeded)

// Offload has p run work, and l run done with what work returned. Once Offload has returned nil, done runs exactly once,
// on the loop, also when the loop is told to stop meanwhile: it stops after that. Otherwise neither function ever runs, and
// the error is [ErrNotRunning], [ErrStopped] or [ErrPoolStopped].
//
// The context of work is the Work of the loop's scope. When Force ends it, done runs at once, with the cause, and work
// that has not begun never does. What work returns after that comes too late: it is dropped and counted, and touches
// nothing. Work that brings something that must be given back asks its context before it returns.
//
// A panic in work becomes the error of done, a [*PanicError], and is counted by the pool. Offload never waits; a pool's
// queue has no limit. It panics if one of its arguments is nil.
func Offload[T any](l *Loop, p *Pool, work func(ctx context.Context) (T, error), done func(T, error)) error {
	mustOffload(p, work != nil && done != nil)
	return offload(l, p, l.scope.Work(), func() {}, work, done)
}

// OffloadTimeout is [Offload], and when d has passed done runs with [ErrOffloadTimeout] at once. The context of work ends
// then; work that does not look at it goes on, and can be waited for with [Loop.WaitRunners]. Of the time-out and the
// result, one wins, and done never runs twice. A d of zero or less has passed already. The time counts from the call, so
// it includes the wait for a worker.
func OffloadTimeout[T any](l *Loop, p *Pool, d time.Duration, work func(ctx context.Context) (T, error), done func(T, error)) error {
	mustOffload(p, work != nil && done != nil)
	ctx, cancel := context.WithTimeoutCause(l.scope.Work(), d, ErrOffloadTimeout)
	err := offload(l, p, ctx, cancel, work, done)
	if err != nil {
		cancel()
	}
	return err
}

func mustOffload(p *Pool, functions bool) {
	mustFunc(functions, "Offload")
	if p == nil {
		panic("eventloop: Offload to a nil pool")
	}
}

func offload[T any](l *Loop, p *Pool, ctx context.Context, cancel func(), work func(ctx context.Context) (T, error), done func(T, error)) error {
	if !l.box.owe() {
		return l.notRunning()
	}
	o := &offloaded[T]{loop: l, done: done, guard: l.offloads.Guard()}
	l.box.offloads.add()
	if !p.Submit(func() { o.run(ctx, cancel, p, work) }) {
		l.box.forgive()
		l.box.offloads.done()
		o.guard.Release()
		return ErrPoolStopped
	}
	undo := context.AfterFunc(ctx, func() { o.expire(ctx, false) })
	o.undo.Store(&undo)
	if o.settled.Load() {
		undo()
	}
	return nil
}

// An offloaded is one offload on its way.
//
//	owed ──work returns──▶ settled: done is queued with its result
//	  └──ctx ends────────▶ settled: done is queued with the cause ──work returns──▶ late
//
// Whoever swaps settled pays the debt to the loop, which therefore is not over before. A late result finds the debt paid
// and never gets near the loop.
type offloaded[T any] struct {
	loop    *Loop
	done    func(T, error)
	guard   *ctxshutdown.Guard // until work has returned
	settled atomic.Bool
	undo    atomic.Pointer[func() bool] // of the AfterFunc on its context
}

// run is the job of the pool.
func (o *offloaded[T]) run(ctx context.Context, cancel func(), p *Pool, work func(ctx context.Context) (T, error)) {
	defer o.guard.Release()
	defer cancel()
	if ctx.Err() != nil {
		o.expire(ctx, true)
		return
	}
	var v T
	var err error
	returned := false
	defer func() {
		if !returned {
			value := recover()
			e := unwinding("offload", value)
			if value != nil { // a Goexit goes on, and the pool sees it
				p.failed(e)
			}
			err = e
		}
		var used bool
		if returned && err != nil && ctx.Err() != nil {
			o.expire(ctx, true) // has listened to its context, whose cause says more
		} else {
			used = o.settle(v, err, true)
		}
		if !used {
			o.loop.stats.late.Add(1)
		}
	}()
	v, err = work(ctx)
	returned = true
}

// expire settles with the cause of the end of ctx.
func (o *offloaded[T]) expire(ctx context.Context, over bool) {
	var zero T
	cause := context.Cause(ctx)
	if o.settle(zero, cause, over) && errors.Is(cause, ErrOffloadTimeout) {
		o.loop.stats.timedOut.Add(1)
	}
}

// settle reports whether v and err are what done gets. over says that work is not running any more.
func (o *offloaded[T]) settle(v T, err error, over bool) bool {
	if o.settled.Swap(true) {
		if over {
			o.loop.box.offloads.done()
		}
		return false
	}
	if undo := o.undo.Load(); undo != nil {
		(*undo)()
	}
	o.loop.box.pay(func() { o.done(v, err) }, over)
	return true
}

// WaitRunners waits until no offload of the loop is running any more, also those that timed out and those whose loop is
// gone: then nothing that was offloaded touches anything. If ctx ends first it returns a [*WaitError]; if nothing is
// running, nil whatever ctx is. Offloads that begin meanwhile may be waited for or not. It panics if ctx is nil.
func (l *Loop) WaitRunners(ctx context.Context) error { return l.box.offloads.wait(ctx, "offloads") }
