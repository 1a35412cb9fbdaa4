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
)

// stuck returns a loop with an offload that has timed out and goes on, and with a handle that is held, in a bubble. end
// lets go of both.
func stuck(t *testing.T) (l *eventloop.Loop, end func()) {
	l = startedIn(t, t.Context())
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
		drains(t, l.Stop())
		drains(t, p.Stop())
	}
}

// sequence, What each counter signifies: a row each.
func TestCounters(t *testing.T) {
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
				l, end := stuck(t)
				row.stop(l)
				synctest.Wait()
				equal(t, "state", l.State(), eventloop.Stopped)
				equal(t, "counters", l.Stats().Snapshot(), row.want)
				end()
				row.want.LateCompletions = 1
				equal(t, "counters, when all is over", l.Stats().Snapshot(), row.want)
			})
		})
	}
	t.Run("a panic with nothing outstanding", func(t *testing.T) {
		l := started(t)
		l.Post(func() { panic("ouch") })
		drains(t, l.Scope().Completion())
		equal(t, "counters", l.Stats().Snapshot(), eventloop.Snapshot{Accepted: 1, Executed: 1, Panics: 1})
	})
	t.Run("after the stop, what is refused is not too late but wrong", func(t *testing.T) {
		l := started(t)
		drains(t, l.Stop())
		l.Post(never(t, "a refused callback"))
		equal(t, "counters", l.Stats().Snapshot(), eventloop.Snapshot{Refused: 1})
	})
}

// sequence, Shutting down cleanly, and lifecycle, Recommended Shutdown Sequence: in that order, no counter fires.
func TestShutdownInOrder(t *testing.T) {
	l, p := started(t), pool(t, 2)
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
						is(t, "the offload", err, nil)
					})
				})
				runtime.Gosched()
			}
		})
	}
	does(t, l, func() {})
	handle.Trigger() // 1
	producers.Wait() // 2
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	defer cancel()
	is(t, "WaitIdle", p.WaitIdle(ctx), nil)   // 3
	is(t, "Quiesce", l.Quiesce(tooLong), nil) // 4
	is(t, "WaitRunners", l.WaitRunners(ctx), nil)
	is(t, "Stop", l.Stop().Wait(ctx), nil) // 5
	s := l.Stats().Snapshot()
	equal(t, "executed", s.Executed, s.Accepted)
	s.Accepted, s.Executed = 0, 0
	equal(t, "all other counters", s, eventloop.Snapshot{})
}

// sequence, Key API touchpoints: the handle and the counters outlive the loop, and keep nothing of it alive.
func TestHandlesOutliveTheLoop(t *testing.T) {
	l := eventloop.New(context.Background())
	if err := l.Start(); err != nil {
		t.Fatal(err)
	}
	does(t, l, func() {})
	handle, stats, gone := l.ShutdownHandle(), l.Stats(), weak.Make(l)
	drains(t, l.Stop())
	l = nil
	for range 10 {
		if runtime.GC(); gone.Value() == nil {
			break
		}
	}
	isTrue(t, "the loop is collected", gone.Value() == nil)
	handle.Trigger()
	comes(t, "the signal", handle.Signal())
	equal(t, "counters", stats.Snapshot(), eventloop.Snapshot{Accepted: 1, Executed: 1})
}

// sequence, ShutdownHandle: safe from any goroutine, any number of times.
func TestTrigger(t *testing.T) {
	handle := started(t).ShutdownHandle()
	var racing sync.WaitGroup
	for range 8 {
		racing.Go(handle.Trigger)
		racing.Go(func() { <-handle.Signal(); isTrue(t, "it is up", handle.IsShutdown()) })
	}
	racing.Wait()
}

// sequence, ShutdownStats: while all is running they can be read, and never show more executed than accepted.
func TestStatsWhileRunning(t *testing.T) {
	l := started(t)
	var again func()
	again = func() { l.Post(again) } // but for one or two, all is executed: it would show if that were read later
	does(t, l, again)
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
