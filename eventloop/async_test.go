package eventloop_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/eventloop"
	"github.com/swansong-go/swansong/internal/testkit"
)

// A value that comes after the time-out is discarded once, on the goroutine of the work, before the
// work counts as returned. The loop has ended by then. docs/internals/eventloop.md#late-completions
func TestOffloadTimeout_DiscardsValueReturnedAfterTimeoutOnce(t *testing.T) {
	for _, row := range []struct {
		name string
		err  error
		want []string
	}{
		{"without an error", nil, []string{"first: late", "second: late"}},
		{"with an error", errCause, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, p := startedIn(t, t.Context()), eventloop.NewPool(t.Context(), 1)
				end := make(chan struct{})
				var discarded []string
				err := eventloop.OffloadTimeout(l, p, time.Minute,
					func(context.Context) (string, error) { <-end; return "late", row.err },
					func(_ string, err error) { testkit.ErrorIs(t, "completion", err, eventloop.ErrOffloadTimeout) },
					func(v string) { discarded = append(discarded, "first: "+v) },
					func(v string) { discarded = append(discarded, "second: "+v) })
				testkit.ErrorIs(t, "OffloadTimeout", err, nil)
				time.Sleep(time.Hour)
				l.Stop()
				synctest.Wait()
				testkit.Equal(t, "state", l.State(), eventloop.Stopped)
				close(end)
				testkit.ErrorIs(t, "WaitRunners", l.WaitRunners(context.Background()), nil)
				testkit.Equal(t, "discarded", discarded, row.want)
				awaitDone(t, p.Stop())
			})
		})
	}
}

// If work returns a value in time, the completion receives it, and discard is not called. If the
// time has passed before the work begins, there is no value, and discard is not called either.
// docs/internals/eventloop.md#late-completions
func TestOffload_DiscardsNoValueReturnedInTime(t *testing.T) {
	l, p := startLoop(t), newPool(t, 2)
	got := make(chan int, 2)
	work := func(context.Context) (int, error) { return 7, nil }
	done := func(v int, err error) { got <- v }
	discard := func(int) { t.Error("a value was discarded") }
	testkit.ErrorIs(t, "Offload", eventloop.Offload(l, p, work, done, discard), nil)
	testkit.Equal(t, "value", receive(t, "the value", got), 7)
	testkit.ErrorIs(t, "OffloadTimeout", eventloop.OffloadTimeout(l, p, -1, work, done, discard), nil)
	testkit.Equal(t, "value of work that did not begin", receive(t, "the time-out", got), 0)
}

// If an operation of Async does not end in time, done receives the time-out. No goroutine waits for
// the operation. The operation counts as running until it calls complete, and its late value is
// discarded. docs/internals/eventloop.md#async
func TestAsync_DoneReceivesErrorIfOperationTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startedIn(t, t.Context())
		var complete func(string, error)
		var got []error
		var discarded []string
		err := eventloop.Async(l, time.Minute, func(ctx context.Context, c func(string, error)) {
			complete = c
			context.AfterFunc(ctx, func() {
				testkit.ErrorIs(t, "cause of the operation's context", context.Cause(ctx), eventloop.ErrOffloadTimeout)
			})
		}, func(v string, err error) {
			testkit.Equal(t, "value", v, "")
			got = append(got, err)
		}, func(v string) { discarded = append(discarded, v) })
		testkit.ErrorIs(t, "Async", err, nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		runOn(t, l, func() {
			testkit.Equal(t, "number of completions", len(got), 1)
			testkit.ErrorIs(t, "completion", got[0], eventloop.ErrOffloadTimeout)
		})
		synctest.Wait()
		testkit.Equal(t, "counts before the operation has ended", l.Counts(), eventloop.Counts{Offloads: 1})
		complete("late", nil)
		complete("later", nil)
		testkit.ErrorIs(t, "WaitRunners", l.WaitRunners(t.Context()), nil)
		testkit.Equal(t, "discarded", discarded, []string{"late"})
		synctest.Wait()
		testkit.Equal(t, "counters", l.Stats().Snapshot(), eventloop.Snapshot{Accepted: 2, Executed: 2, TimedOut: 1, LateCompletions: 1})
	})
}

// The result of an operation that ends in time reaches done on the loop once, whichever of the
// calls of complete comes first. docs/internals/eventloop.md#async
func TestAsync_DeliversOneResultIfCompleteIsCalledTwice(t *testing.T) {
	l := startLoop(t)
	const n = 200
	total := 0
	for range n {
		err := eventloop.Async(l, time.Hour, func(_ context.Context, complete func(int, error)) {
			for range 3 {
				go complete(1, errCause)
			}
		}, func(v int, err error) {
			testkit.ErrorIs(t, "error", err, errCause)
			total += v
		})
		testkit.ErrorIs(t, "Async", err, nil)
	}
	testkit.ErrorIs(t, "Quiesce", l.Quiesce(tooLong), nil)
	awaitDone(t, l.Stop())
	testkit.Equal(t, "sum of the results", total, n)
	testkit.Equal(t, "counters", l.Stats().Snapshot(), eventloop.Snapshot{Accepted: n, Executed: n})
	testkit.ErrorIs(t, "Async after the stop", eventloop.Async(l, time.Hour,
		func(context.Context, func(int, error)) { t.Error("start was called") }, func(int, error) {}), eventloop.ErrStopped)
}

// A stopped loop waits for an operation of Async. Force ends the operation with the cause of Force.
// docs/internals/eventloop.md#async
func TestAsync_OperationEndsOnForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		app := ctxshutdown.New(t.Context())
		l := startedIn(t, app)
		var got error
		eventloop.Async(l, time.Hour, func(ctx context.Context, complete func(int, error)) {
			context.AfterFunc(ctx, func() { complete(0, ctx.Err()) })
		}, func(_ int, err error) { got = err })
		app.Shutdown()
		synctest.Wait()
		testkit.Equal(t, "state during the operation", l.State(), eventloop.Stopping)
		app.Force(errCause)
		awaitDone(t, app.Completion())
		testkit.ErrorIs(t, "completion", got, errCause)
	})
}

// If start panics, the panic reaches the caller of Async, and done runs with an error, so the loop
// does not wait for the operation. docs/internals/eventloop.md#async
func TestAsync_PanicInStartReachesCaller(t *testing.T) {
	l := startLoop(t)
	got := make(chan error, 1)
	func() {
		defer func() { testkit.Equal(t, "value of the panic", recover(), any("ouch")) }()
		eventloop.Async(l, time.Hour, func(context.Context, func(int, error)) { panic("ouch") }, func(_ int, err error) { got <- err })
	}()
	isTrue(t, "done receives an error", receive(t, "the completion", got) != nil)
	testkit.ErrorIs(t, "Quiesce", l.Quiesce(tooLong), nil)
}

// Time-outs race with results. Each value is either delivered or discarded, and never both.
// docs/internals/eventloop.md#late-completions
func TestOffloadTimeout_DeliversOrDiscardsEachValue(t *testing.T) {
	l, p := startLoop(t), newPool(t, 4)
	const n = 1_000
	var mu sync.Mutex
	fates := make([]int, n) // how often the value was delivered or discarded
	count := func(i int) { mu.Lock(); fates[i]++; mu.Unlock() }
	timedOut := 0
	for i := range n {
		done := func(v int, err error) {
			switch {
			case err == nil:
				count(v)
			case errors.Is(err, eventloop.ErrOffloadTimeout):
				timedOut++
			}
		}
		var err error
		if i%2 == 0 {
			err = eventloop.OffloadTimeout(l, p, 20*time.Microsecond, func(context.Context) (int, error) { time.Sleep(20 * time.Microsecond); return i, nil }, done, count)
		} else {
			err = eventloop.Async(l, 20*time.Microsecond, func(_ context.Context, complete func(int, error)) {
				time.AfterFunc(20*time.Microsecond, func() { complete(i, nil) })
			}, done, count)
		}
		testkit.ErrorIs(t, "offload", err, nil)
	}
	testkit.ErrorIs(t, "Quiesce", l.Quiesce(tooLong), nil)
	awaitDone(t, l.Stop())
	neverBegun := 0
	for i, fate := range fates {
		switch {
		case fate > 1:
			t.Errorf("the value of offload %d was delivered or discarded %d times", i, fate)
		case fate == 0 && i%2 == 1:
			t.Errorf("the value of operation %d was neither delivered nor discarded", i)
		case fate == 0:
			neverBegun++
		}
	}
	late := int(l.Stats().Snapshot().LateCompletions)
	testkit.Equal(t, "time-outs of work that returned late or never began", timedOut, late+neverBegun)
}
