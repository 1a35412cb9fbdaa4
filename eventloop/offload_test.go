package eventloop_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/eventloop"
)

// lifecycle, Drain Contract: what was offloaded has been handed back when WaitIdle returns, and runs before the loop is over.
func TestWaitIdleThenStop(t *testing.T) {
	l, p := started(t), pool(t, 3)
	const n = 500
	sum := 0
	for i := range n {
		err := eventloop.Offload(l, p, func(context.Context) (int, error) { return i, nil }, func(v int, err error) { sum += v })
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := p.WaitIdle(t.Context()); err != nil {
		t.Fatal(err)
	}
	drains(t, l.Stop())
	equal(t, "sum", sum, n*(n-1)/2)
	equal(t, "counters", l.Stats().Snapshot(), eventloop.Snapshot{Accepted: n, Executed: n})
}

// lifecycle, Drain Contract, wait_idle: when it has returned, and when a pool's completion has resolved, all completions are
// queued. Whoever reads the counts is in the way of those who queue.
func TestWaitIdleComesAfterTheCompletions(t *testing.T) {
	for name, wait := range map[string]func(p *eventloop.Pool) error{
		"WaitIdle": func(p *eventloop.Pool) error { return p.WaitIdle(context.Background()) },
		"Stop":     func(p *eventloop.Pool) error { return p.Stop().Wait(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			for range 100 {
				l, p := started(t), pool(t, 4)
				free := busy(t, l)
				reading := reads(l, 2)
				const n = 20
				for range n {
					eventloop.Offload(l, p, func(context.Context) (int, error) { return 1, nil }, func(int, error) {})
				}
				is(t, "the wait", wait(p), nil)
				equal(t, "under way", l.Counts(), eventloop.Counts{Queued: n + 1})
				l.Stop()
				free()
				reading.Wait()
				if t.Failed() {
					return
				}
			}
		})
	}
}

// lifecycle, Late Completion, 1 to 5: the time-out wins, the completion runs with it once, the work goes on, and its result
// is dropped and counted.
func TestLateCompletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := startedIn(t, t.Context()), eventloop.NewPool(t.Context(), 1)
		var got []error
		end := make(chan struct{})
		err := eventloop.OffloadTimeout(l, p, time.Minute, func(ctx context.Context) (string, error) {
			<-ctx.Done()
			is(t, "the context of work", context.Cause(ctx), eventloop.ErrOffloadTimeout)
			<-end
			return "late", nil
		}, func(v string, err error) {
			equal(t, "value", v, "")
			got = append(got, err)
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		does(t, l, func() {
			equal(t, "completions", len(got), 1)
			is(t, "the completion", got[0], eventloop.ErrOffloadTimeout)
			is(t, "the completion", got[0], context.DeadlineExceeded)
		})
		equal(t, "still running", l.Counts(), eventloop.Counts{Offloads: 1})
		close(end)
		if err := l.WaitRunners(t.Context()); err != nil {
			t.Error(err)
		}
		does(t, l, func() { equal(t, "completions", len(got), 1) })
		synctest.Wait()
		equal(t, "counters", l.Stats().Snapshot(), eventloop.Snapshot{Accepted: 3, Executed: 3, TimedOut: 1, LateCompletions: 1})
		drains(t, p.Stop())
	})
}

// The one that is in time is not timed out afterwards, and leaves no timer: its context ends with it.
func TestOffloadInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := startedIn(t, t.Context()), eventloop.NewPool(t.Context(), 1)
		got := 0
		var its context.Context
		eventloop.OffloadTimeout(l, p, time.Minute, func(ctx context.Context) (int, error) { its = ctx; time.Sleep(time.Second); return 7, nil },
			func(v int, err error) {
				isTrue(t, "no error", err == nil)
				got += v
			})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		is(t, "the end of its context, before the time-out", context.Cause(its), context.Canceled)
		time.Sleep(time.Hour)
		does(t, l, func() { equal(t, "results", got, 7) })
		synctest.Wait()
		equal(t, "counters", l.Stats().Snapshot(), eventloop.Snapshot{Accepted: 2, Executed: 2})
		drains(t, p.Stop())
	})
}

// The cause wins over what work makes of it, whoever is first.
func TestOffloadThatListens(t *testing.T) {
	l, p := started(t), pool(t, 2)
	const n = 300
	got := make(chan error, n)
	for range n {
		eventloop.OffloadTimeout(l, p, time.Microsecond, func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() },
			func(_ int, err error) { got <- err })
	}
	for range n {
		if err := comes(t, "a completion", got); err != eventloop.ErrOffloadTimeout {
			t.Fatalf("the completion gets %v", err)
		}
	}
	if err := l.Quiesce(tooLong); err != nil {
		t.Error(err)
	}
	equal(t, "timed out", l.Stats().Snapshot().TimedOut, uint64(n))
}

// Work that has timed out before a worker was free never begins.
func TestTimedOutInTheQueue(t *testing.T) {
	l, p := started(t), pool(t, 1)
	release := make(chan struct{})
	p.Submit(func() { <-release })
	got := make(chan error, 1)
	eventloop.OffloadTimeout(l, p, 0, func(context.Context) (int, error) { t.Error("work begins after its time-out"); return 1, nil },
		func(_ int, err error) { got <- err })
	is(t, "the completion", comes(t, "it", got), eventloop.ErrOffloadTimeout)
	close(release)
	if err := l.Quiesce(tooLong); err != nil {
		t.Error(err)
	}
	equal(t, "counters", l.Stats().Snapshot(), eventloop.Snapshot{Accepted: 1, Executed: 1, TimedOut: 1})
}

// lifecycle, Late Completion and Known Limitation: the loop is gone, the work is not. Its result touches nothing, the scope
// waits for it, WaitRunners does, and the counters tell.
func TestCompletionAfterTheLoopDied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		app := ctxshutdown.New(context.Background(), ctxshutdown.WithName("app"))
		defer app.Shutdown()
		l, p := startedIn(t, app), eventloop.NewPool(t.Context(), 1)
		end := make(chan struct{})
		got := make(chan error, 1)
		began := make(chan struct{})
		eventloop.OffloadTimeout(l, p, time.Millisecond, func(context.Context) (int, error) { close(began); <-end; return 1, nil },
			func(_ int, err error) { got <- err })
		<-began
		is(t, "the completion", <-got, eventloop.ErrOffloadTimeout)
		done := l.Stop()
		synctest.Wait()
		equal(t, "state", l.State(), eventloop.Stopped)
		want := eventloop.Snapshot{Accepted: 1, Executed: 1, TimedOut: 1, UnbalancedShutdowns: 1}
		equal(t, "counters", l.Stats().Snapshot(), want)
		equal(t, "report", app.GuardReport().Entries(), []ctxshutdown.GuardEntry{{Path: "app/loop/offloads", Count: 1}})
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(errCause)
		var late *eventloop.WaitError
		err := l.WaitRunners(ctx)
		isTrue(t, "WaitRunners says what it was waiting for", errors.As(err, &late) && late.Running == 1 && late.What == "offloads")
		is(t, "WaitRunners", err, errCause)
		var quiesce *eventloop.QuiesceTimeoutError
		isTrue(t, "so does Quiesce", errors.As(l.Quiesce(0), &quiesce) && quiesce.Counts == eventloop.Counts{Offloads: 1})
		close(end)
		if err := l.WaitRunners(context.Background()); err != nil {
			t.Error(err)
		}
		drains(t, done)
		drains(t, p.Stop())
		want.LateCompletions = 1
		equal(t, "counters", l.Stats().Snapshot(), want)
		is(t, "Quiesce", l.Quiesce(0), nil)
		is(t, "WaitRunners, with nothing running, whatever the context is", l.WaitRunners(ctx), nil)
	})
}

// Time-out, result, stop and Force race for each of many offloads: one completion each, none of them lost.
func TestOffloadRaces(t *testing.T) {
	for range 200 {
		app := ctxshutdown.New(context.Background())
		l, p := eventloop.New(app), eventloop.NewPool(app, 3)
		if err := l.Start(); err != nil {
			t.Fatal(err)
		}
		const n = 20
		var completed [n]int
		var failed uint64
		var accepted [n]bool
		var running atomic.Int32
		var racing sync.WaitGroup
		racing.Go(func() {
			for i := range n {
				err := eventloop.OffloadTimeout(l, p, time.Duration(i)*10*time.Microsecond, func(context.Context) (int, error) {
					running.Add(1)
					defer running.Add(-1)
					return i, nil
				}, func(v int, err error) {
					completed[i]++
					if err != nil {
						failed++
					}
					isTrue(t, "a result or an error", err == nil && v == i || err != nil && v == 0)
				})
				accepted[i] = err == nil
			}
		})
		racing.Go(func() { app.Shutdown(); app.Force(nil) })
		racing.Wait()
		drains(t, app.Completion())
		equal(t, "running when all is complete", running.Load(), int32(0))
		for i := range n {
			if want := map[bool]int{true: 1}[accepted[i]]; completed[i] != want {
				t.Fatalf("offload %d, accepted %v, completed %d times", i, accepted[i], completed[i])
			}
		}
		s := l.Stats().Snapshot()
		equal(t, "executed", s.Executed, s.Accepted)
		isTrue(t, "unbalanced are only those that were accepted and completed without their result", s.UnbalancedShutdowns <= failed)
	}
}

// A pool that has been told to stop takes on nothing, and the loop is not left with a debt.
func TestOffloadToAStoppedPool(t *testing.T) {
	l, p := started(t), pool(t, 1)
	drains(t, p.Stop())
	for _, err := range []error{
		eventloop.Offload(l, p, func(context.Context) (int, error) { t.Error("work runs"); return 1, nil }, func(int, error) { t.Error("done runs") }),
		eventloop.OffloadTimeout(l, p, time.Hour, func(context.Context) (int, error) { t.Error("work runs"); return 1, nil }, func(int, error) { t.Error("done runs") }),
	} {
		is(t, "Offload", err, eventloop.ErrPoolStopped)
	}
	equal(t, "under way", l.Counts(), eventloop.Counts{})
	drains(t, l.Stop())
}

// One that a pool refuses was never under way for a loop that is being stopped meanwhile, nor for its counters. The loop is
// awake, and may be over as soon as the last of them is taken back.
func TestRefusedOffloadsAreNotCounted(t *testing.T) {
	p := pool(t, 1)
	drains(t, p.Stop())
	for range 80 {
		l := started(t)
		var again func()
		again = func() { l.Post(again) }
		does(t, l, again)
		var racing sync.WaitGroup
		stop := make(chan struct{}, 4)
		for range 4 {
			racing.Go(func() {
				err := eventloop.ErrPoolStopped
				for i := 0; err == eventloop.ErrPoolStopped; i++ {
					if i == 20 {
						stop <- struct{}{}
					}
					err = eventloop.Offload(l, p, func(context.Context) (int, error) { t.Error("work runs"); return 1, nil },
						func(int, error) { t.Error("done runs") })
				}
				is(t, "Offload", err, eventloop.ErrStopped)
			})
		}
		<-stop
		l.Stop()
		racing.Wait()
		drains(t, l.Stop())
		equal(t, "unbalanced", l.Stats().Snapshot().UnbalancedShutdowns, uint64(0))
		if t.Failed() {
			return
		}
	}
}

// Nor is one whose result has been handed over. Whoever reads the counts is in the way of those who change them, which is
// when the loop could get to its end in between.
func TestAnsweredOffloadsAreNotCounted(t *testing.T) {
	p := pool(t, 2)
	for range 200 {
		l := started(t)
		var reading sync.WaitGroup
		reading.Go(func() {
			for l.State() != eventloop.Stopped {
				l.Counts()
			}
		})
		for range 4 {
			eventloop.Offload(l, p, func(context.Context) (int, error) { return 1, nil }, func(int, error) {})
		}
		drains(t, l.Stop())
		reading.Wait()
		equal(t, "counters", l.Stats().Snapshot(), eventloop.Snapshot{Accepted: 4, Executed: 4})
		if t.Failed() {
			return
		}
	}
}
