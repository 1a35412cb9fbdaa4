package eventloop

import (
	"context"
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
	mustOffload(l, p, work != nil && done != nil)
	return offload(l, p, l.scope.Work(), func() {}, work, done)
}

// OffloadTimeout is [Offload], and when d has passed done runs with [ErrOffloadTimeout] at once. The context of work ends
// then; work that does not look at it goes on, and can be waited for with [Loop.WaitRunners]. Of the time-out and the
// result, one wins, and done never runs twice. A d of zero or less has passed already. The time counts from the call, so
// it includes the wait for a worker.
func OffloadTimeout[T any](l *Loop, p *Pool, d time.Duration, work func(ctx context.Context) (T, error), done func(T, error)) error {
	mustOffload(l, p, work != nil && done != nil)
	ctx, cancel := context.WithTimeoutCause(l.scope.Work(), d, ErrOffloadTimeout)
	err := offload(l, p, ctx, cancel, work, done)
	if err != nil {
		cancel()
	}
	return err
}

// mustOffload panics in the caller: later, the loop would be owed something.
func mustOffload(l *Loop, p *Pool, functions bool) {
	mustFunc(functions, "Offload")
	if l == nil {
		panic("eventloop: Offload from a nil loop")
	}
	if l.box == nil {
		panic("eventloop: Offload from a loop that was not made with New")
	}
	mustPool(p, "Offload")
}

func offload[T any](l *Loop, p *Pool, ctx context.Context, cancel func(), work func(ctx context.Context) (T, error), done func(T, error)) error {
	if !l.box.owe() {
		return l.notRunning()
	}
	o := &offloaded[T]{loop: l, ctx: ctx, cancel: cancel, done: done, guard: l.offloads.Guard()}
	if !p.submit(&job{f: func() { o.run(work) }, in: "offload", over: o.over}) {
		l.box.forgive()
		o.guard.Release()
		return ErrPoolStopped
	}
	undo := context.AfterFunc(ctx, o.expire)
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
// and never gets near the loop. What there is to count is counted before anybody who waits is woken.
type offloaded[T any] struct {
	loop    *Loop
	ctx     context.Context
	cancel  func() // ends ctx
	done    func(T, error)
	guard   *ctxshutdown.Guard // until work has returned
	settled atomic.Bool
	undo    atomic.Pointer[func() bool] // of the AfterFunc on ctx

	// The worker's own.
	begun  bool // work was called
	result T
	err    error
}

// run is the job of the pool.
func (o *offloaded[T]) run(work func(ctx context.Context) (T, error)) {
	if o.begun = o.ctx.Err() == nil; o.begun {
		o.result, o.err = work(o.ctx)
	}
}

// over is the end of the job. No code of the user's runs in it: what panicked was reported before, by the pool.
func (o *offloaded[T]) over(failed *PanicError) {
	defer o.guard.Release()
	defer o.cancel()
	first := !o.settled.Swap(true)
	listened := failed == nil && o.err != nil && o.ctx.Err() != nil // to its context, whose cause says more
	if o.begun && (listened || !first) {
		o.loop.stats.late.Add(1)
	}
	switch {
	case !first:
		o.loop.box.offloads.done()
	case !o.begun || listened:
		o.pay(*new(T), o.cause(), true)
	case failed != nil:
		o.pay(o.result, failed, true)
	default:
		o.pay(o.result, o.err, true)
	}
}

// expire settles with the cause of the end of ctx.
func (o *offloaded[T]) expire() {
	if !o.settled.Swap(true) {
		o.pay(*new(T), o.cause(), false)
	}
}

// cause is what done gets in place of a result. It counts a time-out: only who has settled asks.
func (o *offloaded[T]) cause() error {
	cause := context.Cause(o.ctx)
	if cause == ErrOffloadTimeout {
		o.loop.stats.timedOut.Add(1)
	}
	return cause
}

// pay has done run with v and err. over says that work is not running any more.
func (o *offloaded[T]) pay(v T, err error, over bool) {
	if undo := o.undo.Load(); undo != nil {
		(*undo)()
	}
	o.loop.box.pay(func() { o.done(v, err) }, over)
}

// WaitRunners waits until no offload of the loop is running any more, also those that timed out and those whose loop is
// gone: then nothing that was offloaded touches anything. If ctx ends first it returns a [*WaitError]; if nothing is
// running, nil whatever ctx is. Offloads that begin meanwhile may be waited for or not. It panics if ctx is nil.
func (l *Loop) WaitRunners(ctx context.Context) error { return l.box.offloads.wait(ctx, "offloads") }
