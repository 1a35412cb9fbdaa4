package eventloop_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/eventloop"
)

// The number of workers is bounded, all of them are used, and none is left when there is nothing to do.
func TestPoolIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers = 3
		p := eventloop.NewPool(t.Context(), workers)
		var now, most atomic.Int32
		began := time.Now()
		for range 4 * workers {
			isTrue(t, "accepted", p.Submit(func() {
				n := now.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				time.Sleep(time.Second)
				now.Add(-1)
			}))
		}
		equal(t, "running", p.Running(), 4*workers)
		equal(t, "guards", p.Scope().GuardCount(), 4*workers)
		is(t, "WaitIdle", p.WaitIdle(t.Context()), nil)
		equal(t, "at once", most.Load(), int32(workers))
		equal(t, "it took", time.Since(began), 4*time.Second)
		synctest.Wait() // and a bubble that ends with a goroutine blocked fails
		drains(t, p.Stop())
	})
}

func TestPoolRunsJobsInOrder(t *testing.T) {
	p := pool(t, 1)
	var got []int
	for i := range 1_000 {
		p.Submit(func() { got = append(got, i) })
	}
	if err := p.WaitIdle(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, n := range got {
		if i != n {
			t.Fatalf("job %d ran at place %d", n, i)
		}
	}
	equal(t, "jobs", len(got), 1_000)
}

// A pool of none or less has as many workers as there are processors.
func TestPoolOfNoWorkers(t *testing.T) {
	for _, n := range []int{0, -1} {
		p := pool(t, n)
		all := make(chan struct{})
		var here sync.WaitGroup
		here.Add(runtime.GOMAXPROCS(0))
		for range runtime.GOMAXPROCS(0) {
			p.Submit(func() { here.Done(); <-all })
		}
		here.Wait() // all of them at once
		close(all)
	}
}

// lifecycle, ThreadPool::wait_idle: it waits for what is in flight, and says what is if it has to give up.
func TestWaitIdle(t *testing.T) {
	p := pool(t, 1)
	end := make(chan struct{})
	for range 3 {
		p.Submit(func() { <-end })
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errCause)
	var err *eventloop.WaitError
	isTrue(t, "WaitIdle says what it was waiting for", errors.As(p.WaitIdle(ctx), &err) && err.Running == 3)
	equal(t, "message", err.Error(), "eventloop: 3 jobs still running when the wait ended (the cause); wait longer, or end their context with Force")
	is(t, "it", err, errCause)
	close(end)
	is(t, "WaitIdle", p.WaitIdle(context.Background()), nil)
	is(t, "WaitIdle of an idle pool, whatever the context is", p.WaitIdle(ctx), nil)
}

// Submit during Stop, from many goroutines: accepted means run exactly once, refused means never.
func TestSubmitDuringStop(t *testing.T) {
	for range 200 {
		app := ctxshutdown.New(context.Background())
		p := eventloop.NewPool(app, 2)
		var ran, accepted atomic.Int64
		var racing sync.WaitGroup
		for range 4 {
			racing.Go(func() {
				for p.Submit(func() { ran.Add(1) }) {
					accepted.Add(1)
				}
				isTrue(t, "refused once, refused for ever", !p.Submit(never(t, "a refused job")))
			})
		}
		racing.Go(func() { app.Shutdown() })
		racing.Wait()
		drains(t, app.Completion())
		equal(t, "jobs", ran.Load(), accepted.Load())
	}
}

// A job may stop its pool, and submit to it.
func TestPoolStopFromAJob(t *testing.T) {
	p := pool(t, 1)
	ran := make(chan struct{})
	p.Submit(func() {
		isTrue(t, "accepted", p.Submit(func() { close(ran) }))
		p.Stop()
		isTrue(t, "refused", !p.Submit(never(t, "a job after the stop")))
	})
	comes(t, "the job that was accepted", ran)
	drains(t, p.Stop())
}
