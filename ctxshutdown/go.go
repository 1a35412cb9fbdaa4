package ctxshutdown

import "context"

// Go runs f in a goroutine of its own, under a guard and with [Swansong.Work] as its context. It returns false once
// the scope has been told to stop; then f never runs.
//
// A panic in f releases the guard on its way and then ends the program, as in any goroutine. Handing it to whoever
// waits would hide it until the drain, and lose it where nobody waits.
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
		defer g.Release()
		f(g.label(ctx))
	}()
}
