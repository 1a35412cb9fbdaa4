package eventloop_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/swansong-go/swansong/eventloop"
	"github.com/swansong-go/swansong/internal/testkit"
)

// leakyLoop returns a loop in a synctest bubble. The loop has an offload that has timed out and is
// still running, and a handle that is held. The function end ends the offload and releases the
// handle.
func leakyLoop(t *testing.T) (l *eventloop.Loop, end func()) {
	l = startedIn(t, t.Context(), stopsAfterPanic)
	p := eventloop.NewPool(t.Context(), 1)
	release := make(chan struct{})
	eventloop.OffloadTimeout(l, p, time.Second, func(context.Context) (int, error) { <-release; return 1, nil }, func(int, error) {})
	time.Sleep(2 * time.Second)
	synctest.Wait()
	h, ok := l.Handle()
	isTrue(t, "handle", ok)
	return l, func() {
		close(release)
		h.Release()
		awaitDone(t, l.Stop())
		awaitDone(t, p.Stop())
	}
}

// Each counter is incremented in one of the cases. docs/internals/eventloop.md#counters
func TestStats_CountEachKindOfEvent(t *testing.T) {
	for _, row := range []struct {
		name string
		stop func(l *eventloop.Loop)
		want eventloop.Snapshot
	}{
		{"unbalanced_normal_shutdowns", func(l *eventloop.Loop) { l.Stop() },
			eventloop.Snapshot{Accepted: 1, Executed: 1, TimedOut: 1, UnbalancedShutdowns: 2}},
		{"aborted_unwinds, leaked_box_tasks", func(l *eventloop.Loop) { l.Post(func() { panic("ouch") }) },
			eventloop.Snapshot{Accepted: 2, Executed: 2, TimedOut: 1, Panics: 1, AbortedUnwinds: 1, LeakedTasks: 1}},
		{"cross_queue_undrained", func(l *eventloop.Loop) {
			l.Post(func() { l.Stop(); l.Post(func() {}); l.Post(func() {}) })
		}, eventloop.Snapshot{Accepted: 2, Executed: 2, TimedOut: 1, Refused: 2, CrossQueueUndrained: 2, UnbalancedShutdowns: 2}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, end := leakyLoop(t)
				row.stop(l)
				synctest.Wait()
				testkit.Equal(t, "state", l.State(), eventloop.Stopped)
				testkit.Equal(t, "counters", l.Stats().Snapshot(), row.want)
				end()
				row.want.LateCompletions = 1
				testkit.Equal(t, "counters, when all is over", l.Stats().Snapshot(), row.want)
			})
		})
	}
	t.Run("a panic when no offload is running and no handle is held", func(t *testing.T) {
		l := startLoop(t, stopsAfterPanic)
		l.Post(func() { panic("ouch") })
		awaitDone(t, l.Scope().Completion())
		testkit.Equal(t, "counters", l.Stats().Snapshot(), eventloop.Snapshot{Accepted: 1, Executed: 1, Panics: 1})
	})
	t.Run("callbacks that are refused after the end of the loop are not counted as CrossQueueUndrained", func(t *testing.T) {
		l := startLoop(t)
		awaitDone(t, l.Stop())
		l.Post(never(t, "a refused callback"))
		testkit.Equal(t, "counters", l.Stats().Snapshot(), eventloop.Snapshot{Refused: 1})
	})
}

// After a shutdown in the documented order, all counters that indicate a wrong order are zero.
// docs/internals/eventloop.md#counters
func TestStats_ErrorCountersAreZeroIfProducersStopBeforeLoop(t *testing.T) {
	l, p := startLoop(t), newPool(t, 2)
	handle := l.ShutdownHandle()
	var producers sync.WaitGroup
	for range 4 {
		h, ok := l.Handle()
		isTrue(t, "handle", ok)
		producers.Go(func() {
			defer h.Release()
			for !handle.IsShutdown() {
				h.Post(func() {
					eventloop.OffloadTimeout(l, p, time.Hour, func(context.Context) (int, error) { return 1, nil }, func(_ int, err error) {
						testkit.ErrorIs(t, "the offload", err, nil)
					})
				})
				runtime.Gosched()
			}
		})
	}
	runOn(t, l, func() {})
	handle.Trigger() // step 1: tell the producers to stop
	producers.Wait() // step 2: wait until the producers have returned
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	defer cancel()
	testkit.ErrorIs(t, "WaitIdle", p.WaitIdle(ctx), nil)   // step 3: all results are queued at the loop
	testkit.ErrorIs(t, "Quiesce", l.Quiesce(tooLong), nil) // step 4: the loop has nothing left to run
	testkit.ErrorIs(t, "WaitRunners", l.WaitRunners(ctx), nil)
	// Step 5: stop the loop, and wait until its goroutine has ended.
	testkit.ErrorIs(t, "Stop", l.Stop().Wait(ctx), nil)
	s := l.Stats().Snapshot()
	testkit.Equal(t, "executed", s.Executed, s.Accepted)
	s.Accepted, s.Executed = 0, 0
	testkit.Equal(t, "all other counters", s, eventloop.Snapshot{})
}

// The shutdown handle and the counters can be used after the loop has ended, and do not keep the
// memory of the loop alive. docs/internals/eventloop.md#counters
func TestStats_CanBeReadAfterLoopHasEnded(t *testing.T) {
	l, gone := func() (*eventloop.Loop, weak.Pointer[[64]byte]) {
		memory := new([64]byte) // an option of the loop refers to this memory
		handler := func(*eventloop.PanicError) bool { return memory[0] == 0 }
		return eventloop.New(context.Background(), eventloop.WithPanicHandler(handler)), weak.Make(memory)
	}()
	if err := l.Start(); err != nil {
		t.Fatal(err)
	}
	runOn(t, l, func() {})
	handle, stats := l.ShutdownHandle(), l.Stats()
	awaitDone(t, l.Stop())
	l = nil
	for range 10 {
		if runtime.GC(); gone.Value() == nil {
			break
		}
	}
	isTrue(t, "the loop is collected", gone.Value() == nil)
	handle.Trigger()
	receive(t, "the signal", handle.Signal())
	testkit.Equal(t, "counters", stats.Snapshot(), eventloop.Snapshot{Accepted: 1, Executed: 1})
}

// Trigger may be called from any goroutine, any number of times.
// docs/internals/eventloop.md#shutdown-handle
func TestShutdownHandle_TriggerMayBeCalledConcurrently(t *testing.T) {
	handle := startLoop(t).ShutdownHandle()
	var racing sync.WaitGroup
	for range 8 {
		racing.Go(handle.Trigger)
		racing.Go(func() { <-handle.Signal(); isTrue(t, "it is up", handle.IsShutdown()) })
	}
	racing.Wait()
}

// Counters can be read while the loop is running, and never show more callbacks executed than
// accepted. docs/internals/eventloop.md#counters
func TestStats_NeverShowMoreExecutedThanAccepted(t *testing.T) {
	l := startLoop(t)
	var again func()
	// This callback always posts itself again, so Executed stays close to Accepted. A snapshot that
	// reads the two in the wrong order then shows more executed than accepted.
	again = func() { l.Post(again) }
	runOn(t, l, again)
	var racing sync.WaitGroup
	for range 4 {
		racing.Go(func() {
			for range 200_000 {
				if s := l.Stats().Snapshot(); s.Executed > s.Accepted {
					t.Errorf("%+v", s)
					return
				}
			}
		})
	}
	racing.Wait()
}
