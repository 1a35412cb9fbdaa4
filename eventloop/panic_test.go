package eventloop_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/eventloop"
	"github.com/swansong-go/swansong/internal/testkit"
)

// If the panic handler returns false, a panic in any kind of callback stops the loop. Accepted
// callbacks still run.
func TestPanic_StopsLoopIfHandlerReturnsFalse(t *testing.T) {
	p := newPool(t, 1)
	for kind, in := range map[string]func(l *eventloop.Loop, f func()){
		"callback": func(l *eventloop.Loop, f func()) { l.Post(f) },
		"timer":    func(l *eventloop.Loop, f func()) { l.After(0, f) },
		"completion": func(l *eventloop.Loop, f func()) {
			eventloop.Offload(l, p, func(context.Context) (int, error) { return 1, nil }, func(int, error) { f() })
		},
	} {
		for how, value := range map[string]any{"an error": errCause, "a string": "ouch", "nil": nil, "Goexit": eventloop.ErrGoexit} {
			t.Run(kind+", "+how, func(t *testing.T) {
				l := startLoop(t, stopsAfterPanic)
				ran := false
				in(l, func() {
					isTrue(t, "accepted", l.Post(func() { ran = true }))
					if value == eventloop.ErrGoexit {
						runtime.Goexit()
					}
					panic(value)
				})
				awaitDone(t, l.Scope().Completion())
				isTrue(t, "what was accepted has run", ran)
				var err *eventloop.PanicError
				if !errors.As(l.Err(), &err) {
					t.Fatalf("Err: %v, want a PanicError", l.Err())
				}
				if kind == "completion" {
					testkit.Equal(t, "In", err.In, "callback")
				} else {
					testkit.Equal(t, "In", err.In, kind)
				}
				if cause, ok := value.(error); ok {
					testkit.ErrorIs(t, "Err", err, cause)
				}
				isTrue(t, "the stack shows the place", strings.Contains(string(err.Stack), "panic_test.go"))
				testkit.ErrorIs(t, "the cause of the scope", context.Cause(l.Scope()), err)
				s := l.Stats().Snapshot()
				testkit.Equal(t, "panics", s.Panics, uint64(1))
				testkit.Equal(t, "executed", s.Executed, s.Accepted)
			})
		}
	}
}

// If the loop has a panic handler, it continues after a panic. The handler runs on the loop's
// goroutine.
func TestWithPanicHandler_LoopContinuesAfterPanic(t *testing.T) {
	var panics []any
	l := startLoop(t, eventloop.WithPanicHandler(func(err *eventloop.PanicError) bool { panics = append(panics, err.Value); return true }))
	for _, value := range []any{"one", "two"} {
		l.Post(func() { panic(value) })
	}
	l.After(0, func() { panic("three") })
	for l.Counts().Timers > 0 { // wait until the timer has fired; it can fire before the second callback has run
		runOn(t, l, func() {})
	}
	runOn(t, l, func() { testkit.Equal(t, "state", l.State(), eventloop.Running) })
	runOn(t, l, func() { testkit.Equal(t, "panics that the handler gets", len(panics), 3) })
	testkit.Equal(t, "panics", l.Stats().Snapshot().Panics, uint64(3))
	var first *eventloop.PanicError
	isTrue(t, "Err is the first", errors.As(l.Err(), &first) && first.Value == panics[0])
}

func TestWithPanicHandler_PanicInHandlerStopsLoop(t *testing.T) {
	l := startLoop(t, eventloop.WithPanicHandler(func(*eventloop.PanicError) bool { panic("again") }))
	l.Post(func() { panic("once") })
	awaitDone(t, l.Scope().Completion())
	testkit.Equal(t, "panics", l.Stats().Snapshot().Panics, uint64(2))
}

// A panic handler that calls Goexit, as FailNow does, stops the loop like a panic handler that
// panics.
func TestWithPanicHandler_GoexitInHandlerStopsLoop(t *testing.T) {
	p := newPool(t, 1)
	for kind, in := range map[string]func(l *eventloop.Loop, f func()){
		"callback": func(l *eventloop.Loop, f func()) { l.Post(f) },
		"timer":    func(l *eventloop.Loop, f func()) { l.After(0, f) },
		"completion": func(l *eventloop.Loop, f func()) {
			eventloop.Offload(l, p, func(context.Context) (int, error) { return 1, nil }, func(int, error) { f() })
		},
	} {
		t.Run(kind, func(t *testing.T) {
			l := startLoop(t, eventloop.WithPanicHandler(func(*eventloop.PanicError) bool { runtime.Goexit(); return true }))
			ran := false
			in(l, func() {
				isTrue(t, "accepted", l.Post(func() { ran = true }))
				panic(errCause)
			})
			awaitDone(t, l.Scope().Completion())
			isTrue(t, "what was accepted has run", ran)
			testkit.ErrorIs(t, "Err is the first", l.Err(), errCause)
			testkit.ErrorIs(t, "the cause of the scope", context.Cause(l.Scope()), errCause)
			s := l.Stats().Snapshot()
			testkit.Equal(t, "panics", s.Panics, uint64(2))
			testkit.Equal(t, "executed", s.Executed, s.Accepted)
		})
	}
}

// If the loop has a panic handler, a panicking timer affects neither other timers that are due, nor
// later timers, nor its own next calls. The test posts no callbacks, since these would wake the
// loop.
func TestTimers_ContinueAfterPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startedIn(t, t.Context(), eventloop.WithPanicHandler(func(*eventloop.PanicError) bool { return true }))
		began := time.Now()
		var once, ticks []time.Duration
		for _, at := range []time.Duration{1500, 1500, 2500} {
			l.After(at*time.Millisecond, func() {
				once = append(once, time.Since(began))
				panic(errCause)
			})
		}
		tick, _ := l.Every(time.Second, func() {
			ticks = append(ticks, time.Since(began))
			panic(errCause)
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		tick.Stop()
		testkit.Equal(t, "once", once, []time.Duration{1500 * time.Millisecond, 1500 * time.Millisecond, 2500 * time.Millisecond})
		var want []time.Duration
		for i := range time.Duration(60) {
			want = append(want, (i+1)*time.Second)
		}
		testkit.Equal(t, "ticks", ticks, want)
		testkit.Equal(t, "panics", l.Stats().Snapshot().Panics, uint64(63))
	})
}

// If a timer function panics and later a callback panics, the second panic is attributed to the
// callback.
func TestPanic_InCallbackIsNotAttributedToEarlierTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var panics []string
		l := startedIn(t, t.Context(), eventloop.WithPanicHandler(func(err *eventloop.PanicError) bool { panics = append(panics, err.In); return true }))
		for range 2 {
			l.After(0, func() { panic(errCause) })
			synctest.Wait()
			l.Post(func() { panic(errCause) })
			synctest.Wait()
		}
		testkit.Equal(t, "panics that the handler gets", panics, []string{"timer", "callback", "timer", "callback"})
		testkit.Equal(t, "counters", l.Stats().Snapshot(), eventloop.Snapshot{Accepted: 2, Executed: 2, Panics: 4})
	})
}

// Timer functions that set the next timer and then panic do not keep callbacks from running. In a
// synctest bubble, where time stands still, such a timer is always due.
func TestTimers_ThatPanicDoNotStarveCallbacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startedIn(t, t.Context(), eventloop.WithPanicHandler(func(*eventloop.PanicError) bool { return true }))
		var posted, ran atomic.Int64
		// timers is the number of timer functions that have run while a callback was waiting; see
		// TestTimers_ThatAreAlwaysDueDoNotStarveCallbacks.
		timers := 0
		begun := make(chan struct{})
		var again func()
		again = func() {
			if posted.Load() > ran.Load() {
				timers++
			} else {
				timers = 0
			}
			if timers < 10_000 {
				l.After(0, again)
			}
			panic(errCause)
		}
		runOn(t, l, func() { l.After(0, func() { close(begun); again() }) })
		<-begun
		for range 100 {
			done := make(chan struct{})
			isTrue(t, "it is taken", l.Post(func() { ran.Add(1); close(done) }))
			posted.Add(1)
			receive(t, "the callback", done)
		}
		awaitDone(t, l.Stop())
		isTrue(t, "callbacks run between the timers", timers < 10_000)
	})
}

// While the loop drains, callbacks panic, call Goexit or return, and the panic handler sometimes
// calls Goexit. Every callback runs, and the loop ends.
func TestPanic_InManyCallbacksSkipsNoCallbackOfDrain(t *testing.T) {
	panics := 0
	l := startLoop(t, eventloop.WithPanicHandler(func(*eventloop.PanicError) bool {
		if panics++; panics%2 == 0 {
			runtime.Goexit()
		}
		return true
	}))
	free := block(t, l)
	ran := 0
	for range 20 {
		for _, way := range []func(){func() { panic(errCause) }, runtime.Goexit, func() {}} {
			l.Post(func() { ran++; way() })
		}
	}
	free()
	awaitDone(t, l.Scope().Completion())
	testkit.Equal(t, "callbacks", ran, 60)
	testkit.Equal(t, "panics that the handler gets", panics, 20)
	testkit.Equal(t, "counters", l.Stats().Snapshot(), eventloop.Snapshot{Accepted: 61, Executed: 61, Panics: 50})
}

// A callback that calls Goexit stops the loop. The loop still runs all accepted callbacks, even if
// every one of them calls Goexit. After a Goexit, waiting for the loop in a callback is still
// refused. The stack does not grow from one callback to the next; otherwise it could exceed its
// limit, which ends the program. docs/internals/eventloop.md#panics
func TestPanic_LoopRunsAllCallbacksEvenIfEachCallsGoexit(t *testing.T) {
	l := startLoop(t)
	free := block(t, l)
	var depths []int
	for range 100 {
		l.Post(func() {
			depths = append(depths, runtime.Callers(0, make([]uintptr, 1000)))
			testkit.ErrorIs(t, "Quiesce", l.Quiesce(tooLong), eventloop.ErrInCallback)
			runtime.Goexit()
		})
	}
	free()
	awaitDone(t, l.Scope().Completion())
	testkit.Equal(t, "callbacks", len(depths), 100)
	testkit.Equal(t, "depth of the last callback", depths[99], depths[1])
	testkit.Equal(t, "state", l.State(), eventloop.Stopped)
}

func TestWithInit_PanicIsReturnedByStart(t *testing.T) {
	for name, f := range map[string]func(){"panic": func() { panic(errCause) }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			l := eventloop.New(context.Background(), eventloop.WithInit(func() error { f(); return nil }))
			var err *eventloop.PanicError
			isTrue(t, "Start says so", errors.As(l.Start(), &err) && err.In == "init")
			awaitDone(t, l.Stop())
			testkit.Equal(t, "state", l.State(), eventloop.Stopped)

			l = eventloop.New(context.Background(), eventloop.WithInit(func() error { f(); return nil }))
			ended := make(chan struct{})
			go func() { // called on a new goroutine, because Goexit ends the goroutine
				defer close(ended)
				l.Run(context.Background(), func(context.Context) error { t.Error("main was called"); return nil })
			}()
			receive(t, "the end of Run", ended)
			awaitDone(t, l.Scope().Completion())
			testkit.Equal(t, "state", l.State(), eventloop.Stopped)
		})
	}
}

// A pool recovers and counts panics. If the work of an offload panics, the completion receives the
// panic as its error.
func TestPool_RecoversAndCountsPanicsOfJobs(t *testing.T) {
	var panics []string
	p := newPool(t, 1, eventloop.WithPanicHandler(func(err *eventloop.PanicError) bool {
		panics = append(panics, err.In)
		if len(panics) == 4 {
			panic("in the handler")
		}
		return true
	}))
	p.Submit(func() { panic(errCause) })
	p.Submit(func() { runtime.Goexit() })
	l := startLoop(t)
	got := make(chan error, 2)
	for _, f := range []func(){func() { panic(errCause) }, runtime.Goexit} {
		eventloop.Offload(l, p, func(context.Context) (int, error) { f(); return 1, nil }, func(_ int, err error) { got <- err })
	}
	testkit.ErrorIs(t, "the completion", receive(t, "it", got), errCause)
	testkit.ErrorIs(t, "the completion", receive(t, "it", got), eventloop.ErrGoexit)
	if err := p.WaitIdle(t.Context()); err != nil {
		t.Error(err)
	}
	testkit.Equal(t, "panics that the handler gets", panics, []string{"job", "job", "offload", "offload"})
	testkit.Equal(t, "panics", p.Panics(), uint64(5))
	testkit.ErrorIs(t, "Err is the first", p.Err(), errCause)
	isTrue(t, "the loop is none the worse", l.Err() == nil && l.State() == eventloop.Running)
}

// If a pool's panic handler calls Goexit, every job still finishes, every offload is completed,
// every panic is reported once, and another goroutine takes the worker's place.
func TestPool_GoexitInPanicHandlerLosesNoJob(t *testing.T) {
	var panics []string
	p := newPool(t, 1, eventloop.WithPanicHandler(func(err *eventloop.PanicError) bool {
		panics = append(panics, err.In)
		runtime.Goexit()
		return true
	}))
	l := startLoop(t)
	got := make(chan error, 2)
	for _, f := range []func(){func() { panic(errCause) }, runtime.Goexit} {
		p.Submit(f)
		eventloop.Offload(l, p, func(context.Context) (int, error) { f(); return 1, nil }, func(_ int, err error) { got <- err })
	}
	testkit.ErrorIs(t, "the completion", receive(t, "it", got), errCause)
	testkit.ErrorIs(t, "the completion", receive(t, "it", got), eventloop.ErrGoexit)
	testkit.ErrorIs(t, "WaitIdle", p.WaitIdle(t.Context()), nil)
	testkit.Equal(t, "panics that the handler gets", panics, []string{"job", "offload", "job", "offload"})
	testkit.Equal(t, "panics, with those of the handler", p.Panics(), uint64(8))
	testkit.ErrorIs(t, "Quiesce", l.Quiesce(tooLong), nil) // the last completion may not have returned yet
	testkit.Equal(t, "under way", l.Counts(), eventloop.Counts{})
	awaitDone(t, l.Stop())
}

// If a callback panics while the loop drains, the loop still runs all other accepted callbacks.
// docs/internals/eventloop.md#panics
func TestPanic_DuringDrainSkipsNoFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startedIn(t, t.Context(), stopsAfterPanic)
		ran := 0
		l.Post(func() { time.Sleep(time.Second) })
		for range 3 {
			l.Post(func() { ran++; panic("ouch") })
		}
		awaitDone(t, l.Stop())
		testkit.Equal(t, "callbacks", ran, 3)
		testkit.Equal(t, "panics", l.Stats().Snapshot().Panics, uint64(3))
		testkit.Equal(t, "executed", l.Stats().Snapshot().Executed, uint64(4))
	})
}
