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
	"github.com/swansong-go/swansong/internal/testkit"
)

// When WaitIdle returns, the completions have been queued, and they run before the loop ends.
// docs/internals/eventloop.md#pool
func TestWaitIdle_StopAfterItRunsAllCompletions(t *testing.T) {
	l, p := startLoop(t), newPool(t, 3)
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
	awaitDone(t, l.Stop())
	testkit.Equal(t, "sum", sum, n*(n-1)/2)
	testkit.Equal(t, "counters", l.Stats().Snapshot(), eventloop.Snapshot{Accepted: n, Executed: n})
}

// When WaitIdle returns, or the pool's completion resolves, all completions of offloads have been
// queued at their loops. To make a mistake likely, other goroutines read the counts and so delay
// the goroutines that queue completions. docs/internals/eventloop.md#pool
func TestWaitIdle_ReturnsAfterCompletionsOfOffloadsAreQueued(t *testing.T) {
	for name, wait := range map[string]func(p *eventloop.Pool) error{
		"WaitIdle": func(p *eventloop.Pool) error { return p.WaitIdle(context.Background()) },
		"Stop":     func(p *eventloop.Pool) error { return p.Stop().Wait(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			for range 100 {
				l, p := startLoop(t), newPool(t, 4)
				free := block(t, l)
				reading := contend(l, 2)
				const n = 20
				for range n {
					eventloop.Offload(l, p, func(context.Context) (int, error) { return 1, nil }, func(int, error) {})
				}
				testkit.ErrorIs(t, "the wait", wait(p), nil)
				testkit.Equal(t, "under way", l.Counts(), eventloop.Counts{Queued: n + 1})
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

// The completion of an offload that has timed out runs on the goroutine of the loop, so it waits
// until a running callback returns. docs/internals/eventloop.md#run
func TestOffloadTimeout_CompletionWaitsForRunningCallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := startedIn(t, t.Context()), eventloop.NewPool(t.Context(), 1)
		end, completed := make(chan struct{}), false
		l.Post(func() { <-end })
		err := eventloop.OffloadTimeout(l, p, time.Minute,
			func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() },
			func(int, error) { completed = true })
		testkit.ErrorIs(t, "OffloadTimeout", err, nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		isTrue(t, "no completion during the callback", !completed)
		close(end)
		runOn(t, l, func() { isTrue(t, "a completion after the callback", completed) })
		awaitDone(t, p.Stop())
	})
}

// After a time-out, the completion runs once with the time-out, the work continues, and its result
// is discarded and counted. docs/internals/eventloop.md#late-completions
func TestOffloadTimeout_CountsResultReturnedAfterTimeoutAsDiscarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := startedIn(t, t.Context()), eventloop.NewPool(t.Context(), 1)
		var got []error
		end := make(chan struct{})
		err := eventloop.OffloadTimeout(l, p, time.Minute, func(ctx context.Context) (string, error) {
			<-ctx.Done()
			testkit.ErrorIs(t, "the context of work", context.Cause(ctx), eventloop.ErrOffloadTimeout)
			<-end
			return "late", nil
		}, func(v string, err error) {
			testkit.Equal(t, "value", v, "")
			got = append(got, err)
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		runOn(t, l, func() {
			testkit.Equal(t, "completions", len(got), 1)
			testkit.ErrorIs(t, "the completion", got[0], eventloop.ErrOffloadTimeout)
			testkit.ErrorIs(t, "the completion", got[0], context.DeadlineExceeded)
		})
		synctest.Wait() // the callback that closed done is counted as queued until it has returned
		testkit.Equal(t, "still running", l.Counts(), eventloop.Counts{Offloads: 1})
		close(end)
		if err := l.WaitRunners(t.Context()); err != nil {
			t.Error(err)
		}
		runOn(t, l, func() { testkit.Equal(t, "completions", len(got), 1) })
		synctest.Wait()
		testkit.Equal(t, "counters", l.Stats().Snapshot(), eventloop.Snapshot{Accepted: 3, Executed: 3, TimedOut: 1, LateCompletions: 1})
		awaitDone(t, p.Stop())
	})
}

// If an offload finishes in time, its context ends with it. So it does not time out later, and it
// leaves no timer.
func TestOffloadTimeout_LeavesNoTimerIfWorkEndsInTime(t *testing.T) {
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
		testkit.ErrorIs(t, "the end of its context, before the time-out", context.Cause(its), context.Canceled)
		time.Sleep(time.Hour)
		runOn(t, l, func() { testkit.Equal(t, "results", got, 7) })
		synctest.Wait()
		testkit.Equal(t, "counters", l.Stats().Snapshot(), eventloop.Snapshot{Accepted: 2, Executed: 2})
		awaitDone(t, p.Stop())
	})
}

// If the context of offloaded work ends, the completion receives the cause of the context, even if
// the work returns another error and returns before its completion runs.
func TestOffload_CompletionReceivesCauseIfContextOfWorkEnds(t *testing.T) {
	l, p := startLoop(t), newPool(t, 2)
	const n = 300
	got := make(chan error, n)
	for range n {
		eventloop.OffloadTimeout(l, p, time.Microsecond, func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() },
			func(_ int, err error) { got <- err })
	}
	for range n {
		if err := receive(t, "a completion", got); err != eventloop.ErrOffloadTimeout {
			t.Fatalf("the completion received %v", err)
		}
	}
	if err := l.Quiesce(tooLong); err != nil {
		t.Error(err)
	}
	testkit.Equal(t, "timed out", l.Stats().Snapshot().TimedOut, uint64(n))
}

// Work that times out before a worker is free is never called.
func TestOffload_WorkThatTimesOutInQueueIsNeverCalled(t *testing.T) {
	l, p := startLoop(t), newPool(t, 1)
	release := make(chan struct{})
	p.Submit(func() { <-release })
	got := make(chan error, 1)
	eventloop.OffloadTimeout(l, p, 0, func(context.Context) (int, error) { t.Error("work begins after its time-out"); return 1, nil },
		func(_ int, err error) { got <- err })
	testkit.ErrorIs(t, "the completion", receive(t, "it", got), eventloop.ErrOffloadTimeout)
	close(release)
	if err := l.Quiesce(tooLong); err != nil {
		t.Error(err)
	}
	testkit.Equal(t, "counters", l.Stats().Snapshot(), eventloop.Snapshot{Accepted: 1, Executed: 1, TimedOut: 1})
}

// Work can outlive its loop. The result of such work is discarded and counted. The scope and
// WaitRunners wait until the work returns. docs/internals/eventloop.md#late-completions
func TestOffload_WorkMayOutliveLoop(t *testing.T) {
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
		testkit.ErrorIs(t, "the completion", <-got, eventloop.ErrOffloadTimeout)
		done := l.Stop()
		synctest.Wait()
		testkit.Equal(t, "state", l.State(), eventloop.Stopped)
		want := eventloop.Snapshot{Accepted: 1, Executed: 1, TimedOut: 1, UnbalancedShutdowns: 1}
		testkit.Equal(t, "counters", l.Stats().Snapshot(), want)
		testkit.Equal(t, "report", app.GuardReport().Entries(), []ctxshutdown.GuardEntry{{Path: "app/loop/offloads", Count: 1}})
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(errCause)
		var late *eventloop.WaitError
		err := l.WaitRunners(ctx)
		isTrue(t, "WaitRunners says what it was waiting for", errors.As(err, &late) && late.Running == 1 && late.What == "offloads")
		testkit.ErrorIs(t, "WaitRunners", err, errCause)
		var quiesce *eventloop.QuiesceTimeoutError
		isTrue(t, "so does Quiesce", errors.As(l.Quiesce(0), &quiesce) && quiesce.Counts == eventloop.Counts{Offloads: 1})
		close(end)
		if err := l.WaitRunners(context.Background()); err != nil {
			t.Error(err)
		}
		awaitDone(t, done)
		awaitDone(t, p.Stop())
		want.LateCompletions = 1
		testkit.Equal(t, "counters", l.Stats().Snapshot(), want)
		testkit.ErrorIs(t, "Quiesce", l.Quiesce(0), nil)
		testkit.ErrorIs(t, "WaitRunners, with nothing running, whatever the context is", l.WaitRunners(ctx), nil)
	})
}

// The time-out, the result, the stop of the loop and Force happen at about the same time for many
// offloads. Each completion runs exactly once.
func TestOffload_CompletionRunsOnceIfTimeoutAndStopRace(t *testing.T) {
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
		awaitDone(t, app.Completion())
		testkit.Equal(t, "running when all is complete", running.Load(), int32(0))
		for i := range n {
			if want := map[bool]int{true: 1}[accepted[i]]; completed[i] != want {
				t.Fatalf("offload %d, accepted %v, completed %d times", i, accepted[i], completed[i])
			}
		}
		s := l.Stats().Snapshot()
		testkit.Equal(t, "executed", s.Executed, s.Accepted)
		isTrue(t, "unbalanced are only those that were accepted and completed without their result", s.UnbalancedShutdowns <= failed)
	}
}

// A stopped pool refuses offloads. The loop does not wait for the completion of a refused offload.
func TestOffload_FailsOnStoppedPool(t *testing.T) {
	l, p := startLoop(t), newPool(t, 1)
	awaitDone(t, p.Stop())
	for _, err := range []error{
		eventloop.Offload(l, p, func(context.Context) (int, error) { t.Error("the work was called"); return 1, nil }, func(int, error) { t.Error("the completion was called") }),
		eventloop.OffloadTimeout(l, p, time.Hour, func(context.Context) (int, error) { t.Error("the work was called"); return 1, nil }, func(int, error) { t.Error("the completion was called") }),
	} {
		testkit.ErrorIs(t, "Offload", err, eventloop.ErrPoolStopped)
	}
	testkit.Equal(t, "under way", l.Counts(), eventloop.Counts{})
	awaitDone(t, l.Stop())
}

// An offload that the pool refuses is never counted as running, even while the loop is being
// stopped. A wrong count would show if the loop ended at that moment. So in this test the loop
// never waits for work, and can end as soon as its last completion is cancelled.
func TestOffload_RefusedByPoolNeverCountsAsRunning(t *testing.T) {
	p := newPool(t, 1)
	awaitDone(t, p.Stop())
	for range 80 {
		l := startLoop(t)
		var again func()
		again = func() { l.Post(again) }
		runOn(t, l, again)
		var racing sync.WaitGroup
		stop := make(chan struct{}, 4)
		for range 4 {
			racing.Go(func() {
				err := eventloop.ErrPoolStopped
				for i := 0; err == eventloop.ErrPoolStopped; i++ {
					if i == 20 {
						stop <- struct{}{}
					}
					err = eventloop.Offload(l, p, func(context.Context) (int, error) { t.Error("the work was called"); return 1, nil },
						func(int, error) { t.Error("the completion was called") })
				}
				testkit.ErrorIs(t, "Offload", err, eventloop.ErrStopped)
			})
		}
		<-stop
		l.Stop()
		racing.Wait()
		awaitDone(t, l.Stop())
		testkit.Equal(t, "unbalanced", l.Stats().Snapshot().UnbalancedShutdowns, uint64(0))
		if t.Failed() {
			return
		}
	}
}

// An offload is no longer counted once its completion has been queued. If queueing the completion
// and counting were two steps, the loop could end between them. To delay such steps, another
// goroutine calls Counts all the time.
func TestOffload_CountsAsRunningUntilCompletionIsQueued(t *testing.T) {
	p := newPool(t, 2)
	for range 200 {
		l := startLoop(t)
		var reading sync.WaitGroup
		reading.Go(func() {
			for l.State() != eventloop.Stopped {
				l.Counts()
			}
		})
		for range 4 {
			eventloop.Offload(l, p, func(context.Context) (int, error) { return 1, nil }, func(int, error) {})
		}
		awaitDone(t, l.Stop())
		reading.Wait()
		testkit.Equal(t, "counters", l.Stats().Snapshot(), eventloop.Snapshot{Accepted: 4, Executed: 4})
		if t.Failed() {
			return
		}
	}
}
