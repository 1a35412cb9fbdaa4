package ctxshutdown

import (
	"context"

	"github.com/swansong-go/swansong/internal/unwind"
)

// Go runs f in a goroutine of its own, under a guard and with [Swansong.Work] as its context. It returns false once
// the scope has been told to stop; then f never runs.
//
// A panic in f ends the program, as in any goroutine. Handing it to whoever waits would hide it until the drain, and
// lose it where nobody waits. The guard stays held: a drain that waits for it must not complete, and let main return,
// before the runtime has printed the panic. A function that ends its goroutine by runtime.Goexit releases it.
func (s *Swansong) Go(f func(ctx context.Context)) bool {
	mustFunc(f)
	g, ok := s.TryGuard()
	if !ok {
		return false
	}
	run(s.Work(), g, f)
	return true
}

// Go runs f in a goroutine of its own, under a guard of the nearest scope in ctx, if any, and with ctx as its
// context. It returns false if ctx is done; then f never runs. For panics see [Swansong.Go].
func Go(ctx context.Context, f func(ctx context.Context)) bool {
	mustFunc(f)
	g, ok := Acquire(ctx)
	if !ok {
		return false
	}
	run(ctx, g, f)
	return true
}

func mustFunc(f func(context.Context)) {
	if f == nil {
		panic("ctxshutdown: Go with a nil function")
	}
}

func run(ctx context.Context, g *Guard, f func(context.Context)) {
	go func() {
		defer unwind.UnlessPanic(g.Release)
		f(g.label(ctx))
	}()
}
