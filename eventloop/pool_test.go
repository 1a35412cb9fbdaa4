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
	"github.com/swansong-go/swansong/internal/testkit"
)

// A pool uses as many goroutines as it has workers, never more, and none when there is nothing to
// do.
func TestPool_RunsNoMoreJobsAtOnceThanItHasWorkers(t *testing.T) {
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
		testkit.Equal(t, "running", p.Running(), 4*workers)
		testkit.Equal(t, "guards", p.Scope().GuardCount(), 1)
		testkit.Equal(t, "jobs in the report", p.Scope().GuardReport().Count(), 4*workers)
		testkit.ErrorIs(t, "WaitIdle", p.WaitIdle(t.Context()), nil)
		testkit.Equal(t, "at once", most.Load(), int32(workers))
		testkit.Equal(t, "it took", time.Since(began), 4*time.Second)
		synctest.Wait() // a bubble fails if it ends with a blocked goroutine
		awaitDone(t, p.Stop())
	})
}

func TestPool_RunsJobsInOrder(t *testing.T) {
	p := newPool(t, 1)
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
	testkit.Equal(t, "jobs", len(got), 1_000)
}

// A pool of zero or fewer workers has as many workers as there are processors.
func TestPool_OfZeroWorkersHasOneForEachProcessor(t *testing.T) {
	for _, n := range []int{0, -1} {
		p := newPool(t, n)
		all := make(chan struct{})
		var here sync.WaitGroup
		here.Add(runtime.GOMAXPROCS(0))
		for range runtime.GOMAXPROCS(0) {
			p.Submit(func() { here.Done(); <-all })
		}
		here.Wait() // waits until all workers are running
		close(all)
	}
}

// WaitIdle waits for queued and running jobs. If its context ends first, the error says how many
// jobs are left. docs/internals/eventloop.md#pool
func TestWaitIdle_WaitsForRunningJobs(t *testing.T) {
	p := newPool(t, 1)
	end := make(chan struct{})
	for range 3 {
		p.Submit(func() { <-end })
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errCause)
	var err *eventloop.WaitError
	isTrue(t, "WaitIdle says what it was waiting for", errors.As(p.WaitIdle(ctx), &err) && err.Running == 3)
	testkit.Equal(t, "message", err.Error(), "eventloop: 3 jobs not finished when the wait ended (the cause); wait longer, or end the contexts of offloads with Force")
	testkit.ErrorIs(t, "it", err, errCause)
	close(end)
	testkit.ErrorIs(t, "WaitIdle", p.WaitIdle(context.Background()), nil)
	testkit.ErrorIs(t, "WaitIdle of an idle pool, whatever the context is", p.WaitIdle(ctx), nil)
}

// While a pool is stopped, other goroutines call Submit. A job that was accepted runs exactly once,
// and a refused one never runs.
func TestPool_RunsAcceptedJobsDuringStop(t *testing.T) {
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
		awaitDone(t, app.Completion())
		testkit.Equal(t, "jobs", ran.Load(), accepted.Load())
	}
}

// The completion of a stopped pool resolves when its last job has finished, and not before.
// docs/internals/eventloop.md#pool
func TestPool_CompletionResolvesAfterLastJobOfStoppedPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := eventloop.NewPool(t.Context(), 1)
		began := time.Now()
		for range 3 {
			p.Submit(func() { time.Sleep(time.Second) })
		}
		awaitDone(t, p.Stop())
		testkit.Equal(t, "it took", time.Since(began), 3*time.Second)
		testkit.Equal(t, "running", p.Running(), 0)
		isTrue(t, "refused afterwards", !p.Submit(never(t, "a job after the stop")))
	})
}

// A job may stop its own pool and may submit jobs to it.
func TestPool_JobMayStopPool(t *testing.T) {
	p := newPool(t, 1)
	ran := make(chan struct{})
	p.Submit(func() {
		isTrue(t, "accepted", p.Submit(func() { close(ran) }))
		p.Stop()
		isTrue(t, "refused", !p.Submit(never(t, "a job after the stop")))
	})
	receive(t, "the job that was accepted", ran)
	awaitDone(t, p.Stop())
}
