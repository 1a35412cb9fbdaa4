package eventloop

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"
)

// errStartFailed is the error that the function done of Async receives if the function start does
// not return.
var errStartFailed = errors.New("eventloop: the start function of Async panicked or called runtime.Goexit")

// Async starts an operation that needs no goroutine while it waits, such as a request of a client
// library that takes a callback, and makes l run done with its result. If the operation blocks a
// goroutine, use [OffloadTimeout].
//
// The function start begins the operation and returns. Async calls it on the goroutine of the
// caller. When the operation has ended, it calls the function complete with its result, on any
// goroutine. Only the first call of complete counts, and complete never blocks. As with
// OffloadTimeout, l calls the function done exactly once: with what complete was given, or with
// [ErrOffloadTimeout] when d has passed, or with the cause of the end when Force ends ctx.
//
// The operation counts as running until complete was called, even after a time-out: [Loop.Quiesce],
// [Loop.WaitRunners] and the completion of [Loop.Stop] wait for it. So the operation must observe
// ctx, and call complete when ctx is cancelled. If complete is called without an error, but too
// late for done, its value is passed to each of the functions discard, on the goroutine that called
// complete.
//
// Async returns [ErrNotRunning] or [ErrStopped] if the loop is not Running; then it has not called
// start. If start panics, the panic continues in the caller of Async, and done receives an error
// unless complete was called before. Async panics if an argument is nil.
func Async[T any](l *Loop, d time.Duration, start func(ctx context.Context, complete func(T, error)), done func(T, error), discard ...func(T)) error {
	mustOffload("Async", l, start != nil && done != nil && !slices.ContainsFunc(discard, isNil))
	if !l.box.promise() {
		return l.notRunning()
	}
	ctx, cancel := context.WithTimeoutCause(l.scope.Work(), d, ErrOffloadTimeout)
	o := &offload[T]{loop: l, ctx: ctx, cancel: cancel, done: done, discard: discard, guard: l.offloads.Guard(), begun: true}
	o.site = l.trace.caller()
	var completed atomic.Bool
	complete := func(v T, err error) {
		if completed.Swap(true) {
			return
		}
		// finish delivers the result. The call is deferred, because the call of settle may panic:
		// it calls a function of the user if the result has to be discarded.
		defer o.finish(nil)
		o.result, o.err = v, err
		o.settle()
	}
	o.watch()
	returned := false
	defer func() {
		if !returned {
			complete(*new(T), errStartFailed)
		}
	}()
	start(ctx, complete)
	returned = true
	return nil
}
