package main

import (
	"context"
	"sync"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// goBatch is the number of goroutines that a benchmark starts before it waits for all of them.
const goBatch = 100

// goLargeBatch is so large that the time for creating and stopping a scope does not matter.
const goLargeBatch = 10_000

// goRows compare goroutines that hold a guard with those of a sync.WaitGroup.
func goRows() (rs []row) {
	for _, batch := range []struct {
		name string
		size int
	}{{"100", goBatch}, {"10,000", goLargeBatch}} {
		their := func() func(int) { return func(n int) { goWaitGroup(n, batch.size) } }
		rs = append(rs,
			row{
				what: "scope: Go, " + batch.name + " goroutines and a stop, each", peer: "sync.WaitGroup Go + Wait, the same", limit: 1.15, allocs: rare,
				ours: func() func(int) { return func(n int) { goScope(n, batch.size) } }, their: their,
			},
			row{
				what: "Group: Go, " + batch.name + " goroutines and a Wait, each", peer: "sync.WaitGroup Go + Wait, the same", limit: 1.15, allocs: rare,
				ours: func() func(int) { return func(n int) { goGroup(n, batch.size) } }, their: their,
			})
	}
	return rs
}

//go:noinline
func goScope(n, batch int) {
	for left := n; left > 0; left -= batch {
		s := ctxshutdown.New(context.Background())
		for range min(batch, left) {
			s.Go(func(context.Context) {})
		}
		check(s.Shutdown().Wait(context.Background()))
	}
}

// endWork creates n scopes, one after another, calls Work of each, and stops it. goScope does that,
// too, for each batch of goroutines that it starts.
func endWork(n int) {
	for range n {
		s := ctxshutdown.New(context.Background())
		s.Work()
		check(s.Shutdown().Wait(context.Background()))
	}
}

//go:noinline
func goGroup(n, batch int) {
	for left := n; left > 0; left -= batch {
		g := ctxshutdown.NewGroup(context.Background())
		for range min(batch, left) {
			g.Go(func(context.Context) error { return nil })
		}
		check(g.Wait())
	}
}

//go:noinline
func goWaitGroup(n, batch int) {
	for left := n; left > 0; left -= batch {
		var wg sync.WaitGroup
		for range min(batch, left) {
			wg.Go(nothing)
		}
		wg.Wait()
	}
}
