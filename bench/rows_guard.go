package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// The timed functions are methods and functions of their own, marked noinline: what is compiled as part of a function
// literal may be inlined differently, and allocate differently, from what a user writes.

// guardRows compare a guard with a count in a sync.WaitGroup.
func guardRows() (rs []row) {
	const peer = "sync.WaitGroup Add + Done"
	their := func() func(int) { return (&waitGroup{}).run }
	for _, depth := range []int{0, 4, 16} {
		rs = append(rs, row{
			what: fmt.Sprintf("Guard + Release, depth %d", depth), peer: peer, limit: 1.1, anew: true,
			ours:  func() func(int) { return guards{deep(depth)}.run },
			their: their,
		})
	}
	rs = append(rs,
		row{
			what: "Guard + Release, 2 goroutines on one scope", peer: peer + ", the same", limit: 0.25, allocs: rare, alone: their,
			ours:  func() func(int) { return twice(guards{deep(4)}.run) },
			their: func() func(int) { return twice((&waitGroup{}).run) },
		},
		// Linear would be as if they had nothing in common. Unlike the row above, this one needs nobody to contend.
		row{
			what: "Guard + Release, 2 goroutines on one scope", peer: peer + ", 2 goroutines on one each", limit: 1.5, allocs: rare,
			ours:  func() func(int) { return twice(guards{deep(4)}.run) },
			their: func() func(int) { return apart((&waitGroup{}).run, (&waitGroup{}).run) },
		},
		row{
			what: "TryGuard + Release, root", peer: peer, limit: 1.2, anew: true,
			ours:  func() func(int) { return tries{deep(0)}.run },
			their: their,
		},
		row{
			what: "TryGuard + Release, depth 4", peer: peer, limit: 1.2, anew: true,
			ours:  func() func(int) { return tries{deep(4)}.run },
			their: their,
		},
		row{
			what: "TryGuard + Release, 2 goroutines on one scope", peer: peer + ", the same", limit: 0.5, allocs: rare, alone: their,
			ours:  func() func(int) { return twice(tries{deep(4)}.run) },
			their: func() func(int) { return twice((&waitGroup{}).run) },
		},
	)
	// What Acquire costs is the search for the scope, and the look whether the context has ended.
	for _, layers := range []int{0, 1, 8, 32} {
		rs = append(rs, row{
			what: fmt.Sprintf("Acquire(ctx) + Release, under %d contexts", layers), peer: "ctx.Err + ctx.Value + " + peer, limit: 1.5, anew: true,
			ours:  func() func(int) { return acquires{layered(layers)}.run },
			their: func() func(int) { return (&lookups{ctx: layered(layers)}).run },
		})
	}
	return append(rs, row{
		what: "Guard + Release, traced", peer: peer, most: 150, gate: 20, anew: true, // a time and a half that, where the peer takes 11 ns
		ours: func() func(int) {
			return guards{ctxshutdown.New(context.Background(), ctxshutdown.WithTrace())}.run
		},
		their: their,
	})
}

// floorRows show what two goroutines would take that have nothing in common, on a machine where the peer takes what it does.
func floorRows() []row {
	const each = "sync.WaitGroup Add + Done, 2 goroutines on one each"
	const one = "sync.WaitGroup Add + Done, 2 goroutines on one"
	alone := func() func(int) { return (&waitGroup{}).run }
	shared := func() func(int) { return twice((&waitGroup{}).run) }
	apiece := func() func(int) { return apart((&waitGroup{}).run, (&waitGroup{}).run) }
	return []row{
		{
			what: "an addition and a subtraction, 2 goroutines on a word each", peer: one, their: shared, alone: alone, allocs: rare,
			ours: func() func(int) { return apart((&word{}).run, (&word{}).run) },
		},
		{what: each, peer: one, ours: apiece, their: shared, alone: alone, allocs: rare},
		{what: each, peer: "the same by one goroutine", ours: apiece, their: alone, allocs: rare},
		{
			what: "Guard + Release, 2 goroutines on one scope", peer: "the same by one goroutine", allocs: rare,
			ours:  func() func(int) { return twice(guards{deep(4)}.run) },
			their: func() func(int) { return guards{deep(4)}.run },
		},
	}
}

// A waitGroup is alone on its cache lines.
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

// A word is the least that can be counted on, alone on its cache lines.
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

// deep returns a scope that far below a root, in the state of a scope in use: linked, and waited on.
func deep(depth int) *ctxshutdown.Swansong {
	s := ctxshutdown.New(context.Background())
	for range depth {
		s, _ = ctxshutdown.WithCancel(s)
	}
	s.Guard().Release()
	s.Done()
	return s
}

// twice runs half the operations in each of two goroutines.
func twice(run func(n int)) func(n int) { return apart(run, run) }

// apart runs half the operations in one goroutine by a, and half in another by b.
func apart(a, b func(n int)) func(n int) {
	return func(n int) {
		var wg sync.WaitGroup
		wg.Go(func() { a((n + 1) / 2) })
		wg.Go(func() { b((n + 1) / 2) })
		wg.Wait()
	}
}

// layered returns a context that many contexts below a scope, half of them with values and half of them with a cancel.
func layered(n int) (ctx context.Context) {
	ctx = deep(1)
	for i := range n {
		if i%2 == 0 {
			ctx = context.WithValue(ctx, key(i), i)
		} else {
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			_ = cancel // lives as long as the process
		}
	}
	return ctx
}

type key int

// lookups do by hand what Acquire has to: find something at the far end of a context, and count.
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
