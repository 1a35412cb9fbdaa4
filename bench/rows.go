package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// The timed functions are methods and functions of their own, marked noinline: what is compiled as part of a function
// literal may be inlined differently, and allocate differently, from what a user writes.

func rows() []row {
	var rs []row
	for _, depth := range []int{0, 4, 16} {
		rs = append(rs, row{
			what: fmt.Sprintf("Guard + Release, depth %d", depth), peer: "sync.WaitGroup Add + Done", limit: 1.1,
			ours:  func() func(int) { return guards{deep(depth)}.run },
			their: func() func(int) { return (&waitGroup{}).run },
		})
	}
	rs = append(rs,
		row{
			what: "TryGuard + Release", peer: "sync.WaitGroup Add + Done",
			ours:  func() func(int) { return tries{deep(4)}.run },
			their: func() func(int) { return (&waitGroup{}).run },
		},
		row{
			what: "Acquire(ctx) + Release", peer: "sync.WaitGroup Add + Done",
			ours:  func() func(int) { return acquires{deep(4)}.run },
			their: func() func(int) { return (&waitGroup{}).run },
		},
		row{
			what: "Guard + Release, 2 goroutines on one scope", peer: "sync.WaitGroup Add + Done, the same",
			ours:  func() func(int) { return twice(guards{deep(4)}.run) },
			their: func() func(int) { return twice((&waitGroup{}).run) },
		},
	)
	for _, siblings := range []int{0, 1_000, 100_000} {
		rs = append(rs, row{
			what: fmt.Sprintf("child + cancel, %d live siblings", siblings), peer: "context.WithCancel + cancel, the same", limit: 2,
			ours:  func() func(int) { return newFamily(siblings, heldChild).run },
			their: func() func(int) { return newFamily(siblings, stdChild).runStd },
		})
	}
	rs = append(rs,
		row{
			what: "child + Guard + Release + cancel, 1000 live siblings", peer: "context.WithCancel + cancel, the same",
			ours:  func() func(int) { return newFamily(1_000, heldChild).runGuarded },
			their: func() func(int) { return newFamily(1_000, stdChild).runStd },
		},
		row{
			what: "child + Done + cancel, 1000 live siblings", peer: "context.WithCancel + Done + cancel, the same",
			ours:  func() func(int) { return newFamily(1_000, heldChild).runWaited },
			their: func() func(int) { return newFamily(1_000, stdChild).runStdWaited },
		},
	)
	const many = 100_000
	for _, kind := range []struct {
		what  string
		limit float64
		child func(*family) any
		std   func(*family) any
	}{
		{"nobody waits on", 1.5, idleChild, stdChild},
		{"nobody waits on and that held a guard", 1.5, usedChild, stdChild},
		{"nobody waits on and that hold a guard", 1.5, heldChild, stdChild},
		{"somebody waits on", 0, waitedChild, stdWaited},
	} {
		rs = append(rs, row{
			what: fmt.Sprintf("stop %d children that %s", many, kind.what), peer: "cancel of as many context.WithCancel",
			limit: kind.limit, once: true,
			ours:  func() func(int) { f := newFamily(many, kind.child); return f.stop },
			their: func() func(int) { f := newFamily(many, kind.std); return f.stopStd },
		})
	}
	return append(rs, row{
		what: fmt.Sprintf("stop %d children that nobody waits on, then ask each for Err", many), peer: "the same with context.WithCancel",
		once:  true,
		ours:  func() func(int) { f := newFamily(many, idleChild); return f.stopAndAsk },
		their: func() func(int) { f := newFamily(many, stdChild); return f.stopAndAskStd },
	})
}

type waitGroup struct{ wg sync.WaitGroup }

//go:noinline
func (w *waitGroup) run(n int) {
	for range n {
		w.wg.Add(1)
		w.wg.Done()
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
func twice(run func(n int)) func(n int) {
	return func(n int) {
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { run((n + 1) / 2) })
		}
		wg.Wait()
	}
}

// A family is a parent with live children, in both worlds.
type family struct {
	scope  *ctxshutdown.Swansong
	ctx    context.Context
	cancel context.CancelFunc
	kept   []any
}

func newFamily(n int, child func(*family) any) *family {
	f := &family{scope: ctxshutdown.New(context.Background())}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	for range n {
		f.kept = append(f.kept, child(f))
	}
	return f
}

func idleChild(f *family) any {
	s, _ := ctxshutdown.WithCancel(f.scope)
	return s
}

func heldChild(f *family) any {
	s, _ := ctxshutdown.WithCancel(f.scope)
	return s.Guard()
}

func usedChild(f *family) any {
	s, _ := ctxshutdown.WithCancel(f.scope)
	s.Guard().Release()
	return s
}

func waitedChild(f *family) any {
	s, _ := ctxshutdown.WithCancel(f.scope)
	s.Done()
	return s
}

func stdChild(f *family) any {
	ctx, cancel := context.WithCancel(f.ctx)
	_ = cancel // ends with its parent
	return ctx
}

func stdWaited(f *family) any {
	ctx, cancel := context.WithCancel(f.ctx)
	_ = cancel // ends with its parent
	ctx.Done()
	return ctx
}

//go:noinline
func (f *family) run(n int) {
	for range n {
		_, cancel := ctxshutdown.WithCancel(f.scope)
		cancel()
	}
}

//go:noinline
func (f *family) runGuarded(n int) {
	for range n {
		s, cancel := ctxshutdown.WithCancel(f.scope)
		g := s.Guard()
		g.Release()
		cancel()
	}
}

//go:noinline
func (f *family) runWaited(n int) {
	for range n {
		s, cancel := ctxshutdown.WithCancel(f.scope)
		s.Done()
		cancel()
	}
}

//go:noinline
func (f *family) runStd(n int) {
	for range n {
		_, cancel := context.WithCancel(f.ctx)
		cancel()
	}
}

//go:noinline
func (f *family) runStdWaited(n int) {
	for range n {
		ctx, cancel := context.WithCancel(f.ctx)
		ctx.Done()
		cancel()
	}
}

func (f *family) stop(int)    { f.scope.Shutdown() }
func (f *family) stopStd(int) { f.cancel() }

func (f *family) stopAndAsk(int) {
	f.stop(1)
	f.ask()
}

func (f *family) stopAndAskStd(int) {
	f.stopStd(1)
	f.ask()
}

func (f *family) ask() {
	for _, child := range f.kept {
		if child.(context.Context).Err() == nil {
			panic("bench: a child has not been stopped")
		}
	}
}
