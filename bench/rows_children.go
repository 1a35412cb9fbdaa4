package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/figures"
)

// childRows compare a child scope with a child context.
func childRows() (rs []row) {
	for _, siblings := range []int{0, 1_000, 100_000} {
		rs = append(rs, row{
			what: fmt.Sprintf("child + cancel, %d live siblings", siblings), peer: "context.WithCancel + cancel, the same", limit: 0.75, gate: 1, allocs: 2, oneProcessor: true,
			ours:  func() func(int) { return newFamily(siblings, guardedChild).run },
			their: func() func(int) { return newFamily(siblings, stdChild).runStd },
		})
	}
	rs = append(rs,
		row{
			what: "child + Guard + Release + cancel, 1000 live siblings", peer: "context.WithCancel + cancel, the same", limit: 1.25, allocs: 2,
			ours:  func() func(int) { return newFamily(1_000, guardedChild).runGuarded },
			their: func() func(int) { return newFamily(1_000, stdChild).runStd },
		},
		row{
			what: "child + Done + cancel, 1000 live siblings", peer: "context.WithCancel + Done + cancel, the same", limit: 2, allocs: 6,
			ours:  func() func(int) { return newFamily(1_000, guardedChild).runWaited },
			their: func() func(int) { return newFamily(1_000, stdChild).runStdWaited },
		},
	)
	const many = 100_000
	for _, kind := range []struct {
		what  string
		n     int
		limit float64
		child func(*family) any
		std   func(*family) any
	}{
		{"without waiters", many, 1, idleChild, stdChild},
		{"without waiters, after a guard each", many, 1, usedChild, stdChild},
		{"without waiters, with a guard each", many, 1, guardedChild, stdChild},
		{"with a waiter each", 10 * many, 1.3, waitedChild, stdWaited},
	} {
		rs = append(rs, row{
			what: fmt.Sprintf("stop %d children %s", kind.n, kind.what), peer: "the same with context.WithCancel",
			limit: kind.limit, once: true,
			ours:  func() func(int) { f := newFamily(kind.n, kind.child); return f.stop },
			their: func() func(int) { f := newFamily(kind.n, kind.std); return f.stopStd },
		})
	}
	return append(rs, row{
		what: fmt.Sprintf("stop %d children without waiters, then call Err of each", many), peer: "the same with context.WithCancel",
		limit: 1, once: true,
		ours:  func() func(int) { f := newFamily(many, idleChild); return f.stopAndCheck },
		their: func() func(int) { f := newFamily(many, stdChild); return f.stopAndCheckStd },
	})
}

// A family has a parent scope and a parent context. A benchmark creates children of one of them.
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

func guardedChild(f *family) any {
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
	_ = cancel // need not be called, because the end of the parent context ends ctx
	return ctx
}

func stdWaited(f *family) any {
	ctx, cancel := context.WithCancel(f.ctx)
	_ = cancel // need not be called, because the end of the parent context ends ctx
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

func (f *family) stopAndCheck(int) {
	f.stop(1)
	f.checkErr()
}

func (f *family) stopAndCheckStd(int) {
	f.stopStd(1)
	f.checkErr()
}

// checkErr calls Err of each child, which must not be nil after the stop of the parent.
func (f *family) checkErr() {
	for _, child := range f.kept {
		if child.(context.Context).Err() == nil {
			panic("bench: Err of a child is nil after the stop of its parent")
		}
	}
}

const firstNotes = `
## First guards

The first guard of a child puts the child into the list of its parent, so that a stop finds it. Here the parent has a
million children with guards. The time of the first guard, and of context.WithCancel below a parent with as many
children, 200,000 times:

`

// printFirstGuards measures and prints how long the first guard of a child takes among many
// siblings.
func printFirstGuards(w io.Writer) {
	f := newFamily(1_000_000, guardedChild)
	for range 1_000_000 {
		f.kept = append(f.kept, stdChild(f))
	}
	fmt.Fprint(w, firstNotes)
	figures.Row(w, "", "median", "p99.9", "slowest")
	figures.Row(w, "---", "---:", "---:", "---:")
	print := func(name string, op func() (took time.Duration)) {
		times := make([]float64, 200_000)
		for i := range times {
			times[i] = float64(op())
		}
		figures.Row(w, name, short(figures.Median(times)), short(figures.Quantile(times, 0.999)), short(figures.Quantile(times, 1)))
	}
	print("first guard of a child", func() time.Duration {
		s, cancel := ctxshutdown.WithCancel(f.scope)
		defer cancel()
		began := time.Now()
		g := s.Guard()
		took := time.Since(began)
		g.Release()
		return took
	})
	print("context.WithCancel", func() time.Duration {
		began := time.Now()
		_, cancel := context.WithCancel(f.ctx)
		took := time.Since(began)
		cancel()
		return took
	})
}
