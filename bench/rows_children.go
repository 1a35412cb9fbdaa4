package main

import (
	"context"
	"fmt"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// childRows compare a child scope with a child context.
func childRows() (rs []row) {
	for _, siblings := range []int{0, 1_000, 100_000} {
		rs = append(rs, row{
			what: fmt.Sprintf("child + cancel, %d live siblings", siblings), peer: "context.WithCancel + cancel, the same", limit: 1.25, allocs: 2,
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
		limit float64
		child func(*family) any
		std   func(*family) any
	}{
		{"without waiters", 1, idleChild, stdChild},
		{"without waiters, after a guard each", 1, usedChild, stdChild},
		{"without waiters, with a guard each", 1, guardedChild, stdChild},
		{"with a waiter each", 2, waitedChild, stdWaited},
	} {
		rs = append(rs, row{
			what: fmt.Sprintf("stop %d children %s", many, kind.what), peer: "the same with context.WithCancel",
			limit: kind.limit, once: true,
			ours:  func() func(int) { f := newFamily(many, kind.child); return f.stop },
			their: func() func(int) { f := newFamily(many, kind.std); return f.stopStd },
		})
	}
	return append(rs, row{
		what: fmt.Sprintf("stop %d children without waiters, then call Err of each", many), peer: "the same with context.WithCancel",
		limit: 1, once: true,
		ours:  func() func(int) { f := newFamily(many, idleChild); return f.stopAndCheck },
		their: func() func(int) { f := newFamily(many, stdChild); return f.stopAndCheckStd },
	})
}

// A family has a parent scope and a parent context, one of which has children.
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
	_ = cancel // the context ends with its parent
	return ctx
}

func stdWaited(f *family) any {
	ctx, cancel := context.WithCancel(f.ctx)
	_ = cancel // the context ends with its parent
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

// checkErr calls Err of each child.
func (f *family) checkErr() {
	for _, child := range f.kept {
		if child.(context.Context).Err() == nil {
			panic("bench: Err of a child is nil after the stop of its parent")
		}
	}
}
