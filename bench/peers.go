package main

import (
	"context"
	"sync"
	"time"

	"github.com/oklog/run"
	"github.com/sourcegraph/conc"
	"github.com/sourcegraph/conc/pool"
	"github.com/thejerf/suture/v4"
	"golang.org/x/sync/errgroup"
	"gopkg.in/tomb.v2"
	"k8s.io/apimachinery/pkg/util/waitgroup"
)

// jobs are the operations in which libraries for graceful stops are compared. A library need not
// support all of them.
var jobs = []struct{ name, says string }{
	{"admit", "accept a piece of work unless stopped, and finish it"},
	{"admit, 2 goroutines", "the same in two goroutines at once"},
	{"goroutine", "start a goroutine, and wait for its end"},
	{"child", "create a child that can be stopped separately, and stop it"},
	{"stop 1000", "start 1000 goroutines that wait for the stop, stop them, and wait for their end"},
}

// A peer is one of the libraries that are compared. For each element of jobs it has a side that
// measures that job, or nil if the library cannot do the job.
type peer struct {
	name  string
	sides [5]side
}

func peers() []peer {
	return []peer{
		{"swansong", [5]side{
			func() func(int) { return tries{running()}.run },
			func() func(int) { return inTwoGoroutines(tries{running()}.run) },
			func() func(int) { return goSwansong },
			func() func(int) { return newFamily(0, nil).run },
			func() func(int) { return stopSwansong },
		}},
		{"sync.WaitGroup, context", [5]side{
			nil, // cannot do the first two jobs: a WaitGroup has no stop that refuses work
			nil,
			func() func(int) { var wg sync.WaitGroup; return startMany(func() { wg.Go(func() {}) }, wg.Wait) },
			func() func(int) { return newFamily(0, nil).runStd },
			func() func(int) { return stopStd },
		}},
		{"RWMutex and counter", [5]side{
			func() func(int) { return new(stopper).run },
			func() func(int) { return inTwoGoroutines(new(stopper).run) },
			func() func(int) { s := new(stopper); return startMany(func() { s.runAsync(func() {}) }, s.wg.Wait) },
			nil,
			nil,
		}},
		{"k8s SafeWaitGroup", [5]side{
			func() func(int) { return (&safe{}).run },
			func() func(int) { return inTwoGoroutines((&safe{}).run) },
			func() func(int) { return goSafe },
			nil,
			nil,
		}},
		{"errgroup", [5]side{
			nil, nil,
			func() func(int) {
				var g errgroup.Group
				return startMany(func() { g.Go(func() error { return nil }) }, func() { g.Wait() })
			},
			nil,
			func() func(int) { return stopErrgroup },
		}},
		{"conc", [5]side{
			nil, nil,
			func() func(int) { var wg conc.WaitGroup; return startMany(func() { wg.Go(func() {}) }, wg.Wait) },
			nil,
			func() func(int) { return stopConc },
		}},
		{"tomb", [5]side{
			nil, nil,
			func() func(int) { return goTomb },
			func() func(int) { ctx := context.Background(); return func(n int) { tombChildren(ctx, n) } },
			func() func(int) { return stopTomb },
		}},
		{"oklog/run", [5]side{
			nil, nil,
			func() func(int) { return goOklog },
			nil,
			func() func(int) { return stopOklog },
		}},
		{"suture", [5]side{
			nil, nil,
			nil, // Serve of a supervisor returns when its context ends, not when its services have ended
			func() func(int) { return sutureChildren() },
			func() func(int) { return stopSuture },
		}},
		{"http.Server.Shutdown", [5]side{}},
	}
}

// batch is the number of goroutines that are started before the next wait, which bounds their
// number.
const batch = 64

func startMany(start, wait func()) func(n int) {
	return func(n int) {
		for i := range n {
			start()
			if i%batch == batch-1 {
				wait()
			}
		}
		wait()
	}
}

// goSwansong creates a scope for each batch, and stops it to wait for its goroutines.
func goSwansong(n int) {
	for ; n > 0; n -= batch {
		s := running()
		for range min(n, batch) {
			s.Go(func(context.Context) {})
		}
		if err := s.Shutdown().Wait(context.Background()); err != nil {
			panic(err)
		}
	}
}

// goTomb starts n goroutines by package tomb. It creates a tomb for each batch of them: when all
// goroutines of a tomb have ended, the tomb cannot start new ones.
func goTomb(n int) {
	for ; n > 0; n -= batch {
		var t tomb.Tomb
		t.Go(func() error {
			for range min(n, batch) - 1 {
				t.Go(func() error { return nil })
			}
			return nil
		})
		t.Wait()
	}
}

// goSafe creates a SafeWaitGroup for each batch: after Wait, its Add returns an error.
func goSafe(n int) {
	for ; n > 0; n -= batch {
		var wg waitgroup.SafeWaitGroup
		for range min(n, batch) {
			if wg.Add(1) == nil {
				go wg.Done()
			}
		}
		wg.Wait()
	}
}

func goOklog(n int) {
	for ; n > 0; n -= batch {
		var g run.Group
		for range min(n, batch) {
			g.Add(func() error { return nil }, func(error) {})
		}
		g.Run()
	}
}

// A stopper admits work with a lock and a counter, like CockroachDB's util/stop.
type stopper struct {
	mu        sync.RWMutex
	quiescing bool
	wg        sync.WaitGroup
}

func (s *stopper) admit() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.quiescing {
		return false
	}
	s.wg.Add(1)
	return true
}

//go:noinline
func (s *stopper) run(n int) {
	for range n {
		if s.admit() {
			s.wg.Done()
		}
	}
}

func (s *stopper) runAsync(f func()) {
	if s.admit() {
		go func() {
			defer s.wg.Done()
			f()
		}()
	}
}

type safe struct{ wg waitgroup.SafeWaitGroup }

//go:noinline
func (s *safe) run(n int) {
	for range n {
		if s.wg.Add(1) == nil {
			s.wg.Done()
		}
	}
}

func tombChildren(ctx context.Context, n int) {
	for range n {
		t, _ := tomb.WithContext(ctx)
		t.Kill(nil)
	}
}

// waiters is the number of goroutines that wait for a stop.
const waiters = 1000

func stopSwansong(n int) {
	for range n {
		s := running()
		for range waiters {
			s.Go(func(context.Context) { <-s.Done() })
		}
		if err := s.Shutdown().Wait(context.Background()); err != nil {
			panic(err)
		}
	}
}

func stopStd(n int) {
	for range n {
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(context.Background())
		for range waiters {
			wg.Go(func() { <-ctx.Done() })
		}
		cancel()
		wg.Wait()
	}
}

func stopErrgroup(n int) {
	for range n {
		parent, cancel := context.WithCancel(context.Background())
		g, ctx := errgroup.WithContext(parent)
		for range waiters {
			g.Go(func() error { <-ctx.Done(); return nil })
		}
		cancel()
		g.Wait()
	}
}

func stopConc(n int) {
	for range n {
		ctx, cancel := context.WithCancel(context.Background())
		p := pool.New().WithContext(ctx)
		for range waiters {
			p.Go(func(ctx context.Context) error { <-ctx.Done(); return nil })
		}
		cancel()
		p.Wait()
	}
}

func stopTomb(n int) {
	for range n {
		var t tomb.Tomb
		for range waiters {
			t.Go(func() error { <-t.Dying(); return nil })
		}
		t.Kill(nil)
		t.Wait()
	}
}

func stopOklog(n int) {
	for range n {
		var g run.Group
		for range waiters {
			ctx, cancel := context.WithCancel(context.Background())
			g.Add(func() error { <-ctx.Done(); return nil }, func(error) { cancel() })
		}
		g.Add(func() error { return nil }, func(error) {}) // the first actor that returns stops the other actors
		g.Run()
	}
}

// A waiting is a service that waits for its context.
type waiting struct{}

func (waiting) Serve(ctx context.Context) error { <-ctx.Done(); return nil }

// sutureChildren adds services to a supervisor that runs as long as the process, and removes them.
func sutureChildren() func(n int) {
	s := suture.New("bench", suture.Spec{EventHook: func(suture.Event) {}})
	s.ServeBackground(context.Background())
	return func(n int) {
		for range n {
			if err := s.RemoveAndWait(s.Add(waiting{}), time.Minute); err != nil {
				panic(err)
			}
		}
	}
}

func stopSuture(n int) {
	for range n {
		s := suture.New("bench", suture.Spec{EventHook: func(suture.Event) {}})
		for range waiters {
			s.Add(waiting{})
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := s.ServeBackground(ctx)
		cancel()
		<-done
	}
}
