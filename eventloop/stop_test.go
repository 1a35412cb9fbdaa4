package eventloop_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/eventloop"
)

// lifecycle, Post Contract, "Critical", and the test "Post during Stop is rejected and rejected callbacks never execute":
// accepted means executed exactly once, refused means never, and both are counted. The Post() Double-Check Pattern is for that:
// without its second look, at times what was accepted would never run.
func TestPostDuringStop(t *testing.T) {
	const posters, rounds, most = 8, 60, 2_000
	for round := range rounds {
		l := eventloop.New(context.Background())
		if err := l.Start(); err != nil {
			t.Fatal(err)
		}
		runs := make([][most]atomic.Int32, posters)
		var accepted, refused [posters]int
		var racing sync.WaitGroup
		for p := range posters {
			racing.Go(func() {
				for i := range most {
					if !l.Post(func() { runs[p][i].Add(1) }) {
						refused[p]++
						isTrue(t, "once refused, always refused", !l.Post(never(t, "a refused callback")))
						refused[p]++
						return
					}
					accepted[p]++
				}
			})
		}
		for range 2 {
			racing.Go(func() {
				for l.Stats().Snapshot().Executed < uint64(round*30) {
					runtime.Gosched()
				}
				l.Stop()
				isTrue(t, "refused after Stop has returned", !l.Post(never(t, "a callback after Stop")))
			})
		}
		racing.Wait()
		drains(t, l.Stop())
		var want eventloop.Snapshot
		for p := range posters {
			for i := range most {
				once := int32(0)
				if i < accepted[p] {
					once = 1
				}
				if n := runs[p][i].Load(); n != once {
					t.Fatalf("callback %d of poster %d ran %d times, want %d", i, p, n, once)
				}
			}
			want.Accepted += uint64(accepted[p])
			want.Executed += uint64(accepted[p])
			want.Refused += uint64(refused[p])
		}
		want.Refused += 2
		got := l.Stats().Snapshot()
		isTrue(t, "those in between are some of the refused", got.CrossQueueUndrained <= got.Refused)
		got.CrossQueueUndrained = 0
		equal(t, "counters", got, want)
	}
}

// Posts of one goroutine run in order, also those of the drain.
func TestPostsRunInOrder(t *testing.T) {
	l := started(t)
	free := busy(t, l)
	const posters, each = 3, 3_000
	var got [posters][]int
	var posting sync.WaitGroup
	for p := range posters {
		posting.Go(func() {
			for i := range each {
				l.Post(func() { got[p] = append(got[p], i) })
			}
		})
	}
	posting.Wait()
	free()
	drains(t, l.Stop())
	for p := range posters {
		for i, n := range got[p] {
			if i != n {
				t.Fatalf("poster %d: callback %d ran at place %d", p, n, i)
			}
		}
		equal(t, "all of them", len(got[p]), each)
	}
}

// lifecycle, Stop Contract: "early state flip", "drains accepted work", "joins thread".
func TestStopContract(t *testing.T) {
	l := started(t)
	free := busy(t, l)
	ran := false
	isTrue(t, "accepted", l.Post(func() {
		ran = true
		isTrue(t, "refused in the drain", !l.Post(never(t, "a callback posted in the drain")))
		equal(t, "state in the drain", l.State(), eventloop.Stopping)
	}))
	done := l.Stop()
	equal(t, "state when Stop has returned", l.State(), eventloop.Stopping)
	isTrue(t, "refused", !l.Post(never(t, "a callback after Stop")))
	select {
	case <-done.Done():
		t.Error("complete while a callback is running")
	default:
	}
	free()
	drains(t, done)
	equal(t, "state when it has completed", l.State(), eventloop.Stopped)
	isTrue(t, "what was accepted has run", ran)
}

// lifecycle, Stop Contract, "before any other work": whoever sees anything of a stop is refused. Here it is that the scope is
// done, with so many contexts below that to end them all takes a while.
func TestTheFlipComesBeforeTheScope(t *testing.T) {
	for range 5 {
		l := started(t)
		for range 10_000 {
			_, cancel := context.WithCancel(l.Scope())
			defer cancel()
		}
		go l.Stop()
		comes(t, "the end of the scope", l.Scope().Done())
		isTrue(t, "refused", !l.Post(nop))
		if t.Failed() {
			return
		}
	}
}

// The same, where what is seen is that timers are cancelled, with so many of them that it takes a while.
func TestTheFlipComesBeforeTheTimers(t *testing.T) {
	for range 5 {
		l := started(t)
		for range 50_000 {
			l.After(time.Hour, never(t, "a timer after the stop"))
		}
		go l.Stop()
		for l.Stats().Snapshot().CancelledTimers == 0 {
		}
		isTrue(t, "refused", !l.Post(nop))
		if t.Failed() {
			return
		}
	}
}

// lifecycle, Stop Contract, "idempotent", and the test "Multiple Stop calls are idempotent".
func TestStopIsIdempotent(t *testing.T) {
	l := started(t)
	free := busy(t, l)
	var racing sync.WaitGroup
	for range 8 {
		racing.Go(func() {
			for range 100 {
				l.Stop()
			}
		})
	}
	racing.Wait()
	free()
	drains(t, l.Stop())
	drains(t, l.Stop())
	equal(t, "state", l.State(), eventloop.Stopped)
}

// lifecycle, Stop-from-Loop-Thread, and the test "Stop from within callback": it is never lost and never a deadlock,
// whatever kind of callback it comes from.
func TestStopFromTheLoop(t *testing.T) {
	for name, from := range map[string]func(t *testing.T, l *eventloop.Loop, stop func()){
		"a callback": func(t *testing.T, l *eventloop.Loop, stop func()) { l.Post(stop) },
		"two callbacks": func(t *testing.T, l *eventloop.Loop, stop func()) {
			free := busy(t, l)
			l.Post(stop)
			l.Post(stop)
			free()
		},
		"a timer":       func(t *testing.T, l *eventloop.Loop, stop func()) { l.After(0, stop) },
		"a ticking one": func(t *testing.T, l *eventloop.Loop, stop func()) { l.Every(1, stop) },
		"a panic": func(t *testing.T, l *eventloop.Loop, stop func()) {
			l.Post(func() { defer stop(); panic("on its way") })
		},
		"a completion": func(t *testing.T, l *eventloop.Loop, stop func()) {
			eventloop.Offload(l, pool(t, 1), func(context.Context) (int, error) { return 1, nil }, func(int, error) { stop() })
		},
		"the completion of a time-out": func(t *testing.T, l *eventloop.Loop, stop func()) {
			eventloop.OffloadTimeout(l, pool(t, 1), -1, func(context.Context) (int, error) { return 1, nil }, func(int, error) { stop() })
		},
		"offloaded work": func(t *testing.T, l *eventloop.Loop, stop func()) {
			eventloop.Offload(l, pool(t, 1), func(context.Context) (int, error) { stop(); return 1, nil }, func(int, error) {})
		},
		"another goroutine, during a callback": func(t *testing.T, l *eventloop.Loop, stop func()) {
			free := busy(t, l)
			stop()
			free()
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := started(t)
			done := make(chan *ctxshutdown.Completion, 10)
			from(t, l, func() {
				c := l.Stop()
				isTrue(t, "refused at once", !l.Post(never(t, "a callback after Stop")))
				done <- c
			})
			drains(t, comes(t, "the stop", done))
			equal(t, "state", l.State(), eventloop.Stopped)
		})
	}
}

// lifecycle, Stop-from-Loop-Thread, "Callbacks must not destroy the EventLoop": nothing can be destroyed here, but a callback
// may be the last that has hold of its loop. It lets go, and the loop runs what it has accepted and hears a stop from above.
func TestACallbackLetsGoOfTheLoop(t *testing.T) {
	app := ctxshutdown.New(context.Background())
	l := eventloop.New(app)
	if err := l.Start(); err != nil {
		t.Fatal(err)
	}
	free := busy(t, l)
	handle, stats, ran := l.ShutdownHandle(), l.Stats(), make(chan struct{})
	l.Post(func() {
		l = nil
		runtime.GC()
		runtime.GC()
	})
	l.Post(func() { close(ran) })
	free()
	comes(t, "the next callback", ran)
	drains(t, app.Shutdown())
	isTrue(t, "the loop has heard it", handle.IsShutdown())
	equal(t, "counters", stats.Snapshot(), eventloop.Snapshot{Accepted: 3, Executed: 3})
}

// lifecycle, Stop-from-Loop-Thread, where the destructor asserts: waiting in a callback waits for itself. It ends with the
// context of the wait, and the loop goes on.
func TestWaitInACallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startedIn(t, t.Context(), eventloop.WithName("loop"))
		does(t, l, func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			err := l.Stop().Wait(ctx)
			is(t, "Wait", err, context.DeadlineExceeded)
			isTrue(t, "the error names the loop", strings.Contains(err.Error(), "loop ×1"))
			is(t, "Quiesce", l.Quiesce(time.Second), context.DeadlineExceeded)
		})
	})
}

// lifecycle, the test "Destruction without Stop": what is above the loop stops it, and names it meanwhile.
func TestTheScopeAboveStopsTheLoop(t *testing.T) {
	app := ctxshutdown.New(context.Background(), ctxshutdown.WithName("app"))
	l := startedIn(t, app, eventloop.WithName("ui"))
	p := eventloop.NewPool(app, 2, eventloop.WithName("cpu"))
	free := busy(t, l)
	handle, _ := l.Handle()
	work, end := make(chan struct{}), make(chan struct{})
	for range 3 {
		eventloop.Offload(l, p, func(context.Context) (int, error) { work <- struct{}{}; <-end; return 1, nil }, func(int, error) {})
	}
	<-work
	<-work
	done := app.Shutdown()
	comes(t, "the handle is told", l.ShutdownHandle().Signal())
	equal(t, "state", l.State(), eventloop.Stopping)
	isTrue(t, "refused", !l.Post(never(t, "a callback after the stop")) && !p.Submit(never(t, "a job after the stop")))
	equal(t, "report", app.GuardReport().Entries(), []ctxshutdown.GuardEntry{
		{Path: "app/cpu", Count: 3}, {Path: "app/ui/offloads", Count: 3},
		{Path: "app/ui", Count: 1}, {Path: "app/ui/handles", Count: 1},
	})
	free()
	close(end)
	<-work
	handle.Release()
	drains(t, done)
	equal(t, "state", l.State(), eventloop.Stopped)
	s := l.Stats().Snapshot()
	equal(t, "executed", s.Executed, uint64(4))
	equal(t, "accepted", s.Accepted, uint64(4))
}

// What is to be known when the completion has resolved is then known, and not only soon: that the loop is Stopped, that its
// handle is told, and how many timers were cancelled. A stop from above flips the state and tells the rest after that, on a
// goroutine of its own; with many timers that takes a while, in which a loop that is awake gets to its end.
func TestTheCompletionComesLast(t *testing.T) {
	const timers = 1_000
	for range 150 {
		app := ctxshutdown.New(context.Background())
		l := startedIn(t, app)
		for range timers {
			l.After(time.Hour, never(t, "a timer after the stop"))
		}
		var again func()
		again = func() { l.Post(again) }
		does(t, l, again)
		drains(t, app.Shutdown())
		isTrue(t, "the handle is told", l.ShutdownHandle().IsShutdown())
		equal(t, "cancelled", l.Stats().Snapshot().CancelledTimers, uint64(timers))
		equal(t, "state", l.State(), eventloop.Stopped)
		if t.Failed() {
			return
		}
	}
}

// The same for a loop that nobody has started, and for one that is made in a scope that has been stopped.
func TestTheCompletionOfAnIdleLoop(t *testing.T) {
	for range 100 {
		app := ctxshutdown.New(context.Background())
		l := eventloop.New(app)
		drains(t, app.Shutdown())
		equal(t, "state", l.State(), eventloop.Stopped)
		isTrue(t, "the handle is told", l.ShutdownHandle().IsShutdown())
		l = eventloop.New(app)
		equal(t, "state of one made too late", l.State(), eventloop.Stopped)
		isTrue(t, "its handle is told", l.ShutdownHandle().IsShutdown())
		drains(t, app.Completion())
	}
}

// Of two that stop a loop at once, the second does not return before the handle is told either. Here it is a callback, which
// comes to it as soon as the first has flipped the state.
func TestASecondStopReturnsNoSooner(t *testing.T) {
	for range 10 {
		l := started(t)
		for range 50_000 { // to cancel them takes long enough for the second
			l.After(time.Hour, never(t, "a timer after the stop"))
		}
		var again func()
		again = func() {
			if l.Post(again) {
				return
			}
			l.Stop()
			isTrue(t, "the handle is told", l.ShutdownHandle().IsShutdown())
			equal(t, "pending", l.Counts().Timers, 0)
		}
		does(t, l, again)
		drains(t, l.Stop())
		if t.Failed() {
			return
		}
	}
}

// Completions that a stopping loop was promised are run, and it is not over before.
func TestStopWaitsForOffloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := startedIn(t, t.Context()), eventloop.NewPool(t.Context(), 1)
		end := make(chan struct{})
		got := make(chan int, 1)
		eventloop.Offload(l, p, func(context.Context) (int, error) { <-end; return 42, nil }, func(v int, err error) { got <- v })
		done := l.Stop()
		synctest.Wait()
		equal(t, "state", l.State(), eventloop.Stopping)
		equal(t, "scope", l.Scope().State(), ctxshutdown.ShuttingDown)
		close(end)
		drains(t, done)
		if len(got) != 1 {
			t.Fatal("the completion did not run")
		}
		equal(t, "the result", <-got, 42)
		equal(t, "counters", l.Stats().Snapshot(), eventloop.Snapshot{Accepted: 1, Executed: 1})
		drains(t, p.Stop())
	})
}

// Force: what was accepted still runs, offloads are completed with the cause, and their context ends.
func TestForce(t *testing.T) {
	app := ctxshutdown.New(context.Background())
	l := startedIn(t, app)
	p := pool(t, 1)
	free := busy(t, l)
	end := make(chan struct{})
	got := make(chan error, 2)
	done := func(v int, err error) { equal(t, "value", v, 0); got <- err }
	began := make(chan struct{})
	eventloop.Offload(l, p, func(ctx context.Context) (int, error) {
		close(began)
		<-ctx.Done()
		is(t, "the context of work", context.Cause(ctx), errCause)
		<-end
		return 1, nil
	}, done)
	eventloop.Offload(l, p, func(context.Context) (int, error) { t.Error("work begins after Force"); return 1, nil }, done)
	ran := false
	l.Post(func() { ran = true })
	<-began
	complete := app.Force(errCause)
	free()
	is(t, "the completion of the one that runs", comes(t, "it", got), errCause)
	is(t, "the completion of the one that waits", comes(t, "it", got), errCause)
	isTrue(t, "the scope waits for the work", l.Scope().State() == ctxshutdown.ShuttingDown)
	close(end)
	drains(t, complete)
	isTrue(t, "what was accepted has run", ran)
	equal(t, "late", l.Stats().Snapshot().LateCompletions, uint64(1))
}

// The same for an offload with a time-out, which is below the same context: Force is the cause of its end, and not the time.
func TestForceEndsOffloadsWithATimeout(t *testing.T) {
	app := ctxshutdown.New(context.Background())
	l := startedIn(t, app)
	p := pool(t, 1)
	began, got := make(chan struct{}), make(chan error, 2)
	for range 2 { // one that runs and one that waits
		err := eventloop.OffloadTimeout(l, p, time.Hour, func(ctx context.Context) (int, error) {
			close(began)
			<-ctx.Done()
			return 1, context.Cause(ctx)
		}, func(v int, err error) { equal(t, "value", v, 0); got <- err })
		is(t, "OffloadTimeout", err, nil)
	}
	comes(t, "the work", began)
	complete := app.Force(errCause)
	for range 2 {
		is(t, "the completion", comes(t, "it", got), errCause)
	}
	drains(t, complete)
	s := l.Stats().Snapshot()
	s.UnbalancedShutdowns = 0 // 1 where the work needed longer than the loop
	equal(t, "counters", s, eventloop.Snapshot{Accepted: 2, Executed: 2, LateCompletions: 1})
}

// Stopped before it was started, it is Stopped at once, and stays so.
func TestStopBeforeStart(t *testing.T) {
	l := eventloop.New(context.Background())
	drains(t, l.Stop())
	equal(t, "state", l.State(), eventloop.Stopped)
	is(t, "Start", l.Start(), eventloop.ErrStopped)
	isTrue(t, "the handle is told", l.ShutdownHandle().IsShutdown())
}

// A callback that posts for ever does not keep a stop from coming.
func TestACallbackThatPostsForEver(t *testing.T) {
	l := started(t)
	var again func()
	n := 0
	again = func() {
		if n++; n == 1_000 {
			l.Stop()
		}
		if ok := l.Post(again); ok != (n < 1_000) {
			t.Errorf("call %d: Post returns %v", n, ok)
		}
	}
	l.Post(again)
	drains(t, l.Scope().Completion())
	equal(t, "calls", n, 1_000)
	equal(t, "counters", l.Stats().Snapshot(), eventloop.Snapshot{Accepted: 1_000, Executed: 1_000, Refused: 1, CrossQueueUndrained: 1})
}
