package ctxshutdown

// Interrupts: Call, which stops waiting for a function that ignores its context.
//
// A goroutine cannot be stopped from outside, so the function continues to run after Call has
// stopped waiting for it. The function keeps its guard until it returns. Until then the scope does
// not complete, and reports list the guard.

import (
	"context"
	"errors"

	"github.com/swansong-go/swansong/internal/panics"
)

// Call calls f(ctx) and returns its results. If ctx is done before f returns, Call stops waiting
// and returns the zero value and [context.Cause] of ctx, while f keeps running. If ctx carries a
// scope, f holds a guard of the nearest scope until f returns. If ctx is done before the call, f
// does not run. Use Call for functions that take a context but do not return when the context ends.
//
// f runs in a new goroutine. A panic in f ends the program, even if Call has returned before; a
// drain that waits for f does not complete before the program ends, see [Swansong.Go]. If f calls
// runtime.Goexit, Call returns an error that says so. The guard of f can be released shortly after
// Call has returned. Call panics if ctx or f is nil.
func Call[T any](ctx context.Context, f func(ctx context.Context) (T, error)) (T, error) {
	var zero T
	panicIf(f == nil, "ctxshutdown: Call of a nil function")
	type result struct {
		v   T
		err error
	}
	// The channel is buffered, so that the goroutine can send the result of f and end, even after
	// Call has returned.
	done := make(chan result, 1)
	started := Go(ctx, func(ctx context.Context) {
		r := result{err: errGoexit} // the error of Call if f calls runtime.Goexit
		defer panics.UnlessPanic(func() { done <- r })
		r.v, r.err = f(ctx)
	})
	if !started {
		return zero, context.Cause(ctx)
	}
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-done: // if f has returned by now, prefer its result
		return r.v, r.err
	default:
		return zero, context.Cause(ctx)
	}
}

var errGoexit = errors.New("ctxshutdown: Call: the function ended its goroutine with runtime.Goexit")
