package eventloop

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// ErrOffloadTimeout is the error of an offload that has timed out. It wraps
// context.DeadlineExceeded.
var ErrOffloadTimeout = fmt.Errorf("eventloop: offloaded work did not finish in time: %w", context.DeadlineExceeded)

// Offload makes p run work, and l run done with the result of work. Once Offload has returned nil,
// done runs exactly once, on the loop, even if the loop is stopped meanwhile: a stopping loop runs
// done before it ends. If Offload returns [ErrNotRunning], [ErrStopped], [ErrPoolStopped] or
// [ErrQueueFull], neither function runs.
//
// The context of work is the Work of the loop's scope. When Force ends it, done is queued at once
// with the cause, and work that has not begun never runs. A result that arrives afterwards is late:
// it is counted and does not reach done. If the result contains no error, its value is passed to
// each of the functions discard instead, so that a file or a connection can be closed. They are
// called on the goroutine of work, before the work counts as returned, and must not use data of the
// loop.
//
// A panic of work is passed to done as a [*PanicError] and counted by the pool. If done has been
// queued already, and if a function discard panics, no code would receive the panic: it is treated
// as the panic of a job, which ends the program unless p has a panic handler. Offload never blocks.
// It panics if an argument is nil.
func Offload[T any](l *Loop, p *Pool, work func(ctx context.Context) (T, error), done func(T, error), discard ...func(T)) error {
	mustOffload("Offload", l, work != nil && done != nil && !slices.ContainsFunc(discard, isNil))
	mustPool(p, "Offload")
	return startOffload(l, p, l.scope.Work(), func() {}, work, done, discard)
}

// OffloadTimeout is [Offload] with a time limit. When d has passed, done is queued at once
// with [ErrOffloadTimeout], and the context of work ends. Work that ignores its context continues;
// [Loop.WaitRunners] waits for it. done runs exactly once, with the result or the time-out. If d is
// zero or negative, it has passed already. The time includes the wait for a worker.
func OffloadTimeout[T any](l *Loop, p *Pool, d time.Duration, work func(ctx context.Context) (T, error), done func(T, error), discard ...func(T)) error {
	mustOffload("OffloadTimeout", l, work != nil && done != nil && !slices.ContainsFunc(discard, isNil))
	mustPool(p, "OffloadTimeout")
	ctx, cancel := context.WithTimeoutCause(l.scope.Work(), d, ErrOffloadTimeout)
	err := startOffload(l, p, ctx, cancel, work, done, discard)
	if err != nil {
		cancel()
	}
	return err
}

// mustOffload panics if an argument of Offload, OffloadTimeout or Async is invalid. The parameter
// name is the name of that function. Call mustOffload before a completion is promised: otherwise
// the loop would wait for that completion after the panic.
func mustOffload(name string, l *Loop, functions bool) {
	mustFunc(functions, name)
	if l == nil {
		panic("eventloop: " + name + " from a nil loop")
	}
	if l.loop == nil {
		panic("eventloop: " + name + " from a loop that was not created with New")
	}
}

func isNil[T any](f func(T)) bool { return f == nil }

func startOffload[T any](l *Loop, p *Pool, ctx context.Context, cancel func(), work func(ctx context.Context) (T, error), done func(T, error), discard []func(T)) error {
	if !l.box.promise() {
		return l.notRunning()
	}
	o := &offload[T]{loop: l, ctx: ctx, cancel: cancel, done: done, discard: discard, guard: l.offloads.Guard()}
	o.site = l.trace.caller()
	if err := p.submit(p.newJob(func() { o.run(work) }, o)); err != nil {
		l.box.cancelPromise()
		o.guard.Release()
		return err
	}
	o.watch()
	return nil
}

// An offload is one offload in progress.
//
//	promised ──work returns──▶ settled: done is queued with the result
//	   └──────ctx ends───────▶ settled: done is queued with the cause ──work returns──▶ late
//
// The goroutine that sets settled delivers the promised completion, so the loop does not end before
// that. A late result finds the field settled set, and does not reach the loop. Counters are
// updated before waiting goroutines are woken.
type offload[T any] struct {
	loop          *Loop
	ctx           context.Context
	cancel        func() // ends the context ctx of the work
	done          func(T, error)
	discard       []func(T)          // called with a value that is too late for the completion
	guard         *ctxshutdown.Guard // the guard of the offload, released when the work has returned
	site          fmt.Stringer       // the line that called Offload, if the loop is traced
	settled       atomic.Bool
	stopAfterFunc atomic.Pointer[func() bool] // unregisters expire, so that the end of ctx does not call it

	// Only one goroutine uses the fields below: the one that delivers the result. That is the
	// worker, or the goroutine of the first call of complete.
	begun   bool // whether the work was called
	decided bool // whether the method settle was called, which sets the field first
	first   bool // whether the work returned or panicked before the context ended
	result  T
	err     error
}

// watch registers expire to be called when the context of the work ends. If a result is delivered
// before that, expire is not called.
func (o *offload[T]) watch() {
	stopAfterFunc := context.AfterFunc(o.ctx, o.expire)
	o.stopAfterFunc.Store(&stopAfterFunc)
	if o.settled.Load() {
		stopAfterFunc()
	}
}

// run is the job that the pool runs. It calls the work unless its context has ended.
func (o *offload[T]) run(work func(ctx context.Context) (T, error)) {
	if o.begun = o.ctx.Err() == nil; o.begun {
		o.result, o.err = work(o.ctx)
	}
	o.settle()
}

// settle decides whether the result of the work is delivered. If it is not, settle discards the
// value of the result. The functions that discard it belong to the user and may panic. So settle is
// called where a panic of the work would be handled, too.
func (o *offload[T]) settle() {
	o.decided, o.first = true, !o.settled.Swap(true)
	if !o.begun || o.first || o.err != nil {
		return
	}
	for _, f := range o.discard {
		f(o.result)
	}
}

// acceptsPanic reports whether the function done will receive a panic as its error. It returns
// false if the context ended before the work panicked, and if not the work but a function discard
// has panicked.
func (o *offload[T]) acceptsPanic() bool {
	if o.decided {
		return false
	}
	o.decided, o.first = true, !o.settled.Swap(true)
	return o.first
}

// finish delivers the result of the job, unless the offload was completed without it. It calls no
// function of the user; a panic of the work has been reported by the pool before.
func (o *offload[T]) finish(failed *PanicError) {
	defer o.guard.Release()
	defer o.cancel()
	// If the work failed because its context ended, the cause of the context says more than the
	// error.
	cancelled := failed == nil && o.err != nil && o.ctx.Err() != nil
	if o.begun && (cancelled || !o.first) {
		o.loop.stats.late.Add(1)
	}
	switch {
	case !o.first:
		o.loop.box.offloads.done()
	case !o.begun || cancelled:
		o.deliver(*new(T), o.cause(), true)
	case failed != nil:
		o.deliver(o.result, failed, true)
	default:
		o.deliver(o.result, o.err, true)
	}
}

// expire is called when ctx ends. It delivers the cause, unless a result has been delivered.
func (o *offload[T]) expire() {
	if !o.settled.Swap(true) {
		o.deliver(*new(T), o.cause(), false)
	}
}

// cause returns the error that the completion receives instead of a result. If the offload timed
// out, cause counts that. Only the goroutine that has set settled calls cause.
func (o *offload[T]) cause() error {
	cause := context.Cause(o.ctx)
	if cause == ErrOffloadTimeout {
		o.loop.stats.timedOut.Add(1)
	}
	return cause
}

// deliver queues the completion with the result v and err. If workReturned is false, the work has
// not returned yet: its context has ended first.
func (o *offload[T]) deliver(v T, err error, workReturned bool) {
	if stopAfterFunc := o.stopAfterFunc.Load(); stopAfterFunc != nil {
		(*stopAfterFunc)()
	}
	f := func() {
		if w := o.loop.slow; w != nil {
			w.done = o.done
		}
		o.done(v, err)
	}
	if o.loop.trace.on() {
		f = o.loop.trace.callbackAt(o.site, f)
	}
	o.loop.box.deliver(f, workReturned)
}

// WaitRunners waits until all work that was offloaded before the call has returned, including work
// that has timed out and work of a loop that has ended. When WaitRunners returns nil, that work no
// longer uses shared data. WaitRunners might also wait for work that is offloaded during the call.
// If ctx ends first, WaitRunners returns a [*WaitError]; if no work is running, it returns nil even
// if ctx has ended. If a callback would have to wait, it returns [ErrInCallback]. It panics if ctx
// is nil.
func (l *Loop) WaitRunners(ctx context.Context) error { return l.box.offloads.wait(ctx, "offloads") }
