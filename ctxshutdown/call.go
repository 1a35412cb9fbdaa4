package ctxshutdown

import (
	"context"
	"errors"

	"github.com/swansong-go/swansong/internal/unwind"
)

// Call runs f with ctx and returns what f returns, or the zero value and [context.Cause] of ctx if ctx is done first:
// it stops waiting, and f goes on under a guard of the nearest scope in ctx until it returns. It is for code that
// takes a context and does not look at it. If ctx is done already, f does not run.
//
// f runs in a goroutine of its own. A panic in it ends the program, as in any goroutine: the caller may be gone, and what
// becomes of a panic should not depend on that. Neither Call nor a drain returns before that; see [Swansong.Go]. When f
// ends its goroutine by runtime.Goexit, Call returns an error that says so. The guard is released a moment after Call has
// the result.
func Call[T any](ctx context.Context, f func(ctx context.Context) (T, error)) (T, error) {
	var zero T
	if f == nil {
		panic("ctxshutdown: Call of a nil function")
	}
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	ran := Go(ctx, func(ctx context.Context) {
		r := result{err: errGoexit}
		defer unwind.UnlessPanic(func() { done <- r })
		r.v, r.err = f(ctx)
	})
	if !ran {
		return zero, context.Cause(ctx)
	}
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-done: // both were ready: the result is worth more
		return r.v, r.err
	default:
		return zero, context.Cause(ctx)
	}
}

var errGoexit = errors.New("ctxshutdown: the function given to Call ended its goroutine with runtime.Goexit")
