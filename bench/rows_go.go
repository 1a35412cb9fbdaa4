package main

import (
	"context"
	"sync"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// goBatch is the number of goroutines that a benchmark starts before it waits for all of them.
const goBatch = 100

// goRows compare goroutines that hold a guard with those of a sync.WaitGroup.
func goRows() []row {
	const peer = "sync.WaitGroup Go + Wait, the same"
	return []row{
		{what: "scope: Go, 100 goroutines and a stop, each", peer: peer, limit: 1.15, allocs: rare, ours: func() func(int) { return goScope }, their: func() func(int) { return goWaitGroup }},
		{what: "Group: Go, 100 goroutines and a Wait, each", peer: peer, limit: 1.15, allocs: rare, ours: func() func(int) { return goGroup }, their: func() func(int) { return goWaitGroup }},
	}
}

//go:noinline
func goScope(n int) {
	for i := 0; i < n; i += goBatch {
		s := ctxshutdown.New(context.Background())
		for range goBatch {
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
func goGroup(n int) {
	for i := 0; i < n; i += goBatch {
		g := ctxshutdown.NewGroup(context.Background())
		for range goBatch {
			g.Go(func(context.Context) error { return nil })
		}
		check(g.Wait())
	}
}

//go:noinline
func goWaitGroup(n int) {
	for i := 0; i < n; i += goBatch {
		var wg sync.WaitGroup
		for range goBatch {
			wg.Go(nothing)
		}
		wg.Wait()
	}
}
