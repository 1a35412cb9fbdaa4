package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// The timed functions are declared functions, marked noinline. In function literals, inlining and
// allocation can differ from those in the code of a user.

// guardRows compare a guard with a sync.WaitGroup.
func guardRows() (rs []row) {
	const peer = "sync.WaitGroup Add + Done"
	their := func() func(int) { return (&waitGroup{}).run }
	for _, depth := range []int{0, 4, 16} {
		rs = append(rs, row{
			what: fmt.Sprintf("Guard + Release, depth %d", depth), peer: peer, limit: 1, anew: true,
			ours:  func() func(int) { return guards{deep(depth)}.run },
			their: their,
		})
	}
	rs = append(rs,
		row{
			what: "Guard + Release, 2 goroutines on one scope", peer: peer + ", the same", limit: 0.25, allocs: rare, alone: their,
			ours:  func() func(int) { return inTwoGoroutines(guards{deep(4)}.run) },
			their: func() func(int) { return inTwoGoroutines((&waitGroup{}).run) },
		},
		// If guards scaled linearly, two goroutines on one scope would be as fast as two goroutines
		// on two scopes. The row before this one compares with two goroutines on one WaitGroup, and
		// has no result on a machine where that WaitGroup suffers no contention. This row always
		// has one.
		row{
			what: "Guard + Release, 2 goroutines on one scope", peer: peer + ", 2 goroutines, each on its own", limit: 1.2, allocs: rare,
			ours:  func() func(int) { return inTwoGoroutines(guards{deep(4)}.run) },
			their: func() func(int) { return concurrently((&waitGroup{}).run, (&waitGroup{}).run) },
		},
		row{
			what: "TryGuard + Release, root", peer: peer, limit: 1.05, anew: true,
			ours:  func() func(int) { return tries{deep(0)}.run },
			their: their,
		},
		row{
			what: "TryGuard + Release, depth 4", peer: peer, limit: 1.05, anew: true,
			ours:  func() func(int) { return tries{deep(4)}.run },
			their: their,
		},
		row{
			what: "TryGuard + Release, 2 goroutines on one scope", peer: peer + ", the same", limit: 0.5, allocs: rare, alone: their,
			ours:  func() func(int) { return inTwoGoroutines(tries{deep(4)}.run) },
			their: func() func(int) { return inTwoGoroutines((&waitGroup{}).run) },
		},
	)
	// In this comparison, no scope has a standard context before the first call of Err.
	rs = append(rs, row{
		what: "Err, depth 64", peer: "Err of context.WithCancel, depth 64", limit: 10, anew: true,
		ours:  func() func(int) { return deriveNested(64, ctxshutdown.New(context.Background()), deriveScope).run },
		their: func() func(int) { return deriveNested(64, context.Background(), context.WithCancel).run },
	})
	// Acquire searches the context for its scope, and checks whether the context has ended.
	for _, layers := range []int{0, 1, 8, 32} {
		rs = append(rs, row{
			what: fmt.Sprintf("Acquire(ctx) + Release, ctx %d levels below the scope", layers), peer: "ctx.Err + ctx.Value + " + peer, limit: 1.5, anew: true,
			ours:  func() func(int) { return acquires{layered(layers)}.run },
			their: func() func(int) { return (&lookups{ctx: layered(layers)}).run },
		})
	}
	return append(rs, row{
		what: "Guard + Release, traced", peer: peer, limit: 45, anew: true, allocs: 1,
		ours: func() func(int) {
			return guards{ctxshutdown.New(context.Background(), ctxshutdown.WithTrace())}.run
		},
		their: their,
	})
}

// floorRows measure two goroutines that share no memory: the best that two goroutines on one scope
// could reach on this machine.
func floorRows() []row {
	const each = "sync.WaitGroup Add + Done, 2 goroutines, each on its own"
	const one = "sync.WaitGroup Add + Done, 2 goroutines on the same one"
	alone := func() func(int) { return (&waitGroup{}).run }
	shared := func() func(int) { return inTwoGoroutines((&waitGroup{}).run) }
	separate := func() func(int) { return concurrently((&waitGroup{}).run, (&waitGroup{}).run) }
	return []row{
		{
			what: "an addition and a subtraction, 2 goroutines, each on its own word", peer: one, their: shared, alone: alone, allocs: rare,
			ours: func() func(int) { return concurrently((&word{}).run, (&word{}).run) },
		},
		{what: each, peer: one, ours: separate, their: shared, alone: alone, allocs: rare},
		{what: each, peer: "the same by one goroutine", ours: separate, their: alone, allocs: rare},
		{
			what: "Guard + Release, 2 goroutines on one scope", peer: "the same by one goroutine", allocs: rare,
			ours:  func() func(int) { return inTwoGoroutines(guards{deep(4)}.run) },
			their: func() func(int) { return guards{deep(4)}.run },
		},
	}
}

// A waitGroup shares its cache lines with no other data.
type waitGroup struct {
	_  [128]byte
	wg sync.WaitGroup
	_  [128]byte
}

//go:noinline
func (w *waitGroup) run(n int) {
	for range n {
		w.wg.Add(1)
		w.wg.Done()
	}
}

// A word is a counter that is only an atomic integer. It shares its cache lines with no other data.
type word struct {
	_ [128]byte
	n atomic.Int64
	_ [128]byte
}

//go:noinline
func (w *word) run(n int) {
	for range n {
		w.n.Add(1)
		w.n.Add(-1)
	}
}

type guards struct{ s *ctxshutdown.Swansong }

//go:noinline
func (b guards) run(n int) {
	for range n {
		g := b.s.Guard()
		g.Release()
	}
}

type tries struct{ s *ctxshutdown.Swansong }

//go:noinline
func (b tries) run(n int) {
	for range n {
		g, _ := b.s.TryGuard()
		g.Release()
	}
}

type acquires struct{ ctx context.Context }

//go:noinline
func (b acquires) run(n int) {
	for range n {
		g, _ := ctxshutdown.Acquire(b.ctx)
		g.Release()
	}
}

// deep returns a scope with depth ancestors. It is in the state of a scope in use: linked to its
// parent, and with a Done channel.
func deep(depth int) *ctxshutdown.Swansong {
	s := ctxshutdown.New(context.Background())
	for range depth {
		s, _ = ctxshutdown.WithCancel(s)
	}
	s.Guard().Release()
	s.Done()
	return s
}

// inTwoGoroutines returns a function that runs half of the operations in each of two goroutines.
func inTwoGoroutines(run func(n int)) func(n int) { return concurrently(run, run) }

// concurrently returns a function that calls a in one goroutine and b in another one, each for half
// of the operations.
func concurrently(a, b func(n int)) func(n int) {
	return func(n int) {
		var wg sync.WaitGroup
		wg.Go(func() { a((n + 1) / 2) })
		wg.Go(func() { b((n + 1) / 2) })
		wg.Wait()
	}
}

// layered returns a context n levels below a scope. Every second context has a value, the others
// can be cancelled.
func layered(n int) (ctx context.Context) {
	ctx = deep(1)
	for i := range n {
		if i%2 == 0 {
			ctx = context.WithValue(ctx, key(i), i)
		} else {
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			_ = cancel // never called, because the context is used until the process ends
		}
	}
	return ctx
}

type key int

// lookups do by hand what Acquire does: check a context, find the value at the root of the context,
// and count.
type lookups struct {
	ctx context.Context
	wg  sync.WaitGroup
}

//go:noinline
func (b *lookups) run(n int) {
	for range n {
		if b.ctx.Err() != nil || b.ctx.Value(key(-1)) != nil {
			return
		}
		b.wg.Add(1)
		b.wg.Done()
	}
}

// errs calls Err of the context ctx, which does not end. The cancel functions of ctx and of its
// ancestors are in keep, and are never called.
type errs struct {
	ctx  context.Context
	keep []context.CancelFunc
}

//go:noinline
func (e errs) run(n int) {
	for range n {
		if e.ctx.Err() != nil {
			panic("ended")
		}
	}
}

// deriveNested calls derive depth times, beginning with ctx, and returns the resulting context.
func deriveNested(depth int, ctx context.Context, derive func(context.Context) (context.Context, context.CancelFunc)) (e errs) {
	for range depth {
		var cancel context.CancelFunc
		ctx, cancel = derive(ctx)
		e.keep = append(e.keep, cancel)
	}
	e.ctx = ctx
	e.ctx.Err() // if ctx is a scope, its first Err creates the standard context of the parent scope
	return e
}

func deriveScope(ctx context.Context) (context.Context, context.CancelFunc) {
	return ctxshutdown.WithCancel(ctx)
}
