package ctxshutdown

// Scopes: goroutines that hold a guard.

import (
	"context"

	"github.com/swansong-go/swansong/internal/panics"
)

const nilFunction = "ctxshutdown: Go with a nil function"

// Go calls f in a new goroutine that holds a guard of the scope, with [Swansong.Work] as its
// context. The guard is released when f returns. Go returns false, without calling f, once the
// scope has been told to stop. It panics if f is nil.
//
// A panic in f ends the program, as in any goroutine, and leaves the guard held: otherwise the
// drain could complete, and main return, before the runtime has printed the panic. If f calls
// runtime.Goexit, the guard is released.
func (s *Swansong) Go(f func(ctx context.Context)) bool {
	panicIf(f == nil, nilFunction) // here, instead of later in the new goroutine
	state, ok := s.tryAcquire()
	switch {
	case !ok:
		return false
	case state.trace != nil:
		go runGuarded(state, s.Work(), f)
	default:
		// This goroutine does what runGuarded does for an untraced guard, but its closure contains
		// no Guard: a larger closure makes Go measurably slower. See
		// docs/internals/core.md#cost-of-go.
		count := state.count
		go func() {
			defer panics.UnlessPanic(func() { s.node.Release(count) })
			f(s.Work())
		}()
	}
	return true
}

// Go calls f in a new goroutine, with ctx as its context. If ctx carries a scope, the goroutine
// holds a guard of the nearest one until f returns. Go returns false, without calling f, if ctx is
// done. It panics if ctx or f is nil. For panics in f see [Swansong.Go].
func Go(ctx context.Context, f func(ctx context.Context)) bool {
	panicIf(f == nil, nilFunction) // here, instead of later in the new goroutine
	state, ok := acquireFromContext(ctx, 3)
	if ok {
		go runGuarded(state, ctx, f)
	}
	return ok
}

// runGuarded calls f and then releases the guard, in a goroutine that Go has started.
func runGuarded(state guardState, ctx context.Context, f func(ctx context.Context)) {
	g := &Guard{guardState: state} // does not escape, so it is not allocated on the heap
	// A plain defer would release the guard after a panic in f. Then main could return before the
	// runtime has printed the panic.
	defer panics.UnlessPanic(g.Release)
	f(g.label(ctx))
}
