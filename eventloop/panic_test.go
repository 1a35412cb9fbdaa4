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
)

// A panic in each kind of callback is reported, stops the loop, and keeps nothing that was accepted from running.
func TestPanic(t *testing.T) {
	p := pool(t, 1)
	for kind, in := range map[string]func(l *eventloop.Loop, f func()){
		"callback": func(l *eventloop.Loop, f func()) { l.Post(f) },
		"timer":    func(l *eventloop.Loop, f func()) { l.After(0, f) },
		"completion": func(l *eventloop.Loop, f func()) {
			eventloop.Offload(l, p, func(context.Context) (int, error) { return 1, nil }, func(int, error) { f() })
		},
	} {
		for how, value := range map[string]any{"an error": errCause, "a string": "ouch", "nil": nil, "Goexit": eventloop.ErrGoexit} {
			t.Run(kind+", "+how, func(t *testing.T) {
				l := started(t)
				ran := false
				in(l, func() {
					isTrue(t, "accepted", l.Post(func() { ran = true }))
					if value == eventloop.ErrGoexit {
						runtime.Goexit()
					}
					panic(value)
				})
				drains(t, l.Scope().Completion())
				isTrue(t, "what was accepted has run", ran)
				var err *eventloop.PanicError
				if !errors.As(l.Err(), &err) {
					t.Fatalf("Err: %v, want a PanicError", l.Err())
				}
				if kind == "completion" {
					equal(t, "In", err.In, "callback")
				} else {
					equal(t, "In", err.In, kind)
				}
				if cause, ok := value.(error); ok {
					is(t, "Err", err, cause)
				}
				isTrue(t, "the stack shows the place", strings.Contains(string(err.Stack), "panic_test.go"))
				is(t, "the cause of the scope", context.Cause(l.Scope()), err)
				s := l.Stats().Snapshot()
				equal(t, "panics", s.Panics, uint64(1))
				equal(t, "executed", s.Executed, s.Accepted)
			})
		}
	}
}

// With a handler the loop goes on, and the handler is told on the loop.
func TestPanicHandler(t *testing.T) {
	var told []any
	l := started(t, eventloop.WithPanicHandler(func(err *eventloop.PanicError) { told = append(told, err.Value) }))
	for _, value := range []any{"one", "two"} {
		l.Post(func() { panic(value) })
	}
	l.After(0, func() { panic("three") })
	for l.Counts().Timers > 0 { // it fires after the callbacks, or between them
		does(t, l, func() {})
	}
	does(t, l, func() { equal(t, "state", l.State(), eventloop.Running) })
	does(t, l, func() { equal(t, "the handler is told", len(told), 3) })
	equal(t, "panics", l.Stats().Snapshot().Panics, uint64(3))
	var first *eventloop.PanicError
	isTrue(t, "Err is the first", errors.As(l.Err(), &first) && first.Value == told[0])
}

func TestPanicHandlerPanics(t *testing.T) {
	l := started(t, eventloop.WithPanicHandler(func(*eventloop.PanicError) { panic("again") }))
	l.Post(func() { panic("once") })
	drains(t, l.Scope().Completion())
	equal(t, "panics", l.Stats().Snapshot().Panics, uint64(2))
}

// A handler that ends its goroutine instead, such as one that calls FailNow, stops the loop as one that panics does.
func TestPanicHandlerCallsGoexit(t *testing.T) {
	p := pool(t, 1)
	for kind, in := range map[string]func(l *eventloop.Loop, f func()){
		"callback": func(l *eventloop.Loop, f func()) { l.Post(f) },
		"timer":    func(l *eventloop.Loop, f func()) { l.After(0, f) },
		"completion": func(l *eventloop.Loop, f func()) {
			eventloop.Offload(l, p, func(context.Context) (int, error) { return 1, nil }, func(int, error) { f() })
		},
	} {
		t.Run(kind, func(t *testing.T) {
			l := started(t, eventloop.WithPanicHandler(func(*eventloop.PanicError) { runtime.Goexit() }))
			ran := false
			in(l, func() {
				isTrue(t, "accepted", l.Post(func() { ran = true }))
				panic(errCause)
			})
			drains(t, l.Scope().Completion())
			isTrue(t, "what was accepted has run", ran)
			is(t, "Err is the first", l.Err(), errCause)
			is(t, "the cause of the scope", context.Cause(l.Scope()), errCause)
			s := l.Stats().Snapshot()
			equal(t, "panics", s.Panics, uint64(2))
			equal(t, "executed", s.Executed, s.Accepted)
		})
	}
}

// Where there is a handler, a timer that panics costs the others nothing: those that are due with it, those that come
// later, and its own next calls. Nobody posts here, which would wake the loop.
func TestTimersGoOnAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startedIn(t, t.Context(), eventloop.WithPanicHandler(func(*eventloop.PanicError) {}))
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
		equal(t, "once", once, []time.Duration{1500 * time.Millisecond, 1500 * time.Millisecond, 2500 * time.Millisecond})
		var want []time.Duration
		for i := range time.Duration(60) {
			want = append(want, (i+1)*time.Second)
		}
		equal(t, "ticks", ticks, want)
		equal(t, "panics", l.Stats().Snapshot().Panics, uint64(63))
	})
}

// What panics after a timer has is called by its own name, and counted as what it is.
func TestACallbackPanicsAfterATimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		l := startedIn(t, t.Context(), eventloop.WithPanicHandler(func(err *eventloop.PanicError) { told = append(told, err.In) }))
		for range 2 {
			l.After(0, func() { panic(errCause) })
			synctest.Wait()
			l.Post(func() { panic(errCause) })
			synctest.Wait()
		}
		equal(t, "the handler is told", told, []string{"timer", "callback", "timer", "callback"})
		equal(t, "counters", l.Stats().Snapshot(), eventloop.Snapshot{Accepted: 2, Executed: 2, Panics: 4})
	})
}

// Timers that panic, and set the next before that, leave room for callbacks as others do. In a bubble, where the time stands
// still, one is always due.
func TestTimersThatPanicStarveNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startedIn(t, t.Context(), eventloop.WithPanicHandler(func(*eventloop.PanicError) {}))
		var posted, ran atomic.Int64
		timers := 0 // that have run while a callback waited, see TestTimersStarveNobody
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
		does(t, l, func() { l.After(0, func() { close(begun); again() }) })
		<-begun
		for range 100 {
			done := make(chan struct{})
			isTrue(t, "it is taken", l.Post(func() { ran.Add(1); close(done) }))
			posted.Add(1)
			comes(t, "the callback", done)
		}
		drains(t, l.Stop())
		isTrue(t, "callbacks run between the timers", timers < 10_000)
	})
}

// Callbacks that panic, that end their goroutine and that return, and a handler that ends the goroutine at times, all in the
// drain: each callback runs, and the loop comes to its end.
func TestAllWaysOutOfACallback(t *testing.T) {
	told := 0
	l := started(t, eventloop.WithPanicHandler(func(*eventloop.PanicError) {
		if told++; told%2 == 0 {
			runtime.Goexit()
		}
	}))
	free := busy(t, l)
	ran := 0
	for range 20 {
		for _, way := range []func(){func() { panic(errCause) }, runtime.Goexit, func() {}} {
			l.Post(func() { ran++; way() })
		}
	}
	free()
	drains(t, l.Scope().Completion())
	equal(t, "callbacks", ran, 60)
	equal(t, "the handler is told of panics", told, 20)
	equal(t, "counters", l.Stats().Snapshot(), eventloop.Snapshot{Accepted: 61, Executed: 61, Panics: 50})
}

// A callback that ends its goroutine ends the loop in order, however many of them there are.
func TestGoexitInEveryCallback(t *testing.T) {
	l := started(t)
	free := busy(t, l)
	ran := 0
	for range 100 {
		l.Post(func() { ran++; runtime.Goexit() })
	}
	free()
	drains(t, l.Scope().Completion())
	equal(t, "callbacks", ran, 100)
	equal(t, "state", l.State(), eventloop.Stopped)
}

func TestInitPanics(t *testing.T) {
	for name, f := range map[string]func(){"panic": func() { panic(errCause) }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			l := eventloop.New(context.Background(), eventloop.WithInit(func() error { f(); return nil }))
			var err *eventloop.PanicError
			isTrue(t, "Start says so", errors.As(l.Start(), &err) && err.In == "init")
			drains(t, l.Stop())
			equal(t, "state", l.State(), eventloop.Stopped)

			l = eventloop.New(context.Background(), eventloop.WithInit(func() error { f(); return nil }))
			ended := make(chan struct{})
			go func() { // which a Goexit ends
				defer close(ended)
				l.Run(context.Background(), func(context.Context) error { t.Error("main runs"); return nil })
			}()
			comes(t, "the end of Run", ended)
			drains(t, l.Scope().Completion())
			equal(t, "state", l.State(), eventloop.Stopped)
		})
	}
}

// What panics in a pool is contained and counted there. An offload's completion gets it as its error.
func TestPanicInAPool(t *testing.T) {
	var told []string
	p := pool(t, 1, eventloop.WithPanicHandler(func(err *eventloop.PanicError) {
		told = append(told, err.In)
		if len(told) == 4 {
			panic("in the handler")
		}
	}))
	p.Submit(func() { panic(errCause) })
	p.Submit(func() { runtime.Goexit() })
	l := started(t)
	got := make(chan error, 2)
	for _, f := range []func(){func() { panic(errCause) }, runtime.Goexit} {
		eventloop.Offload(l, p, func(context.Context) (int, error) { f(); return 1, nil }, func(_ int, err error) { got <- err })
	}
	is(t, "the completion", comes(t, "it", got), errCause)
	is(t, "the completion", comes(t, "it", got), eventloop.ErrGoexit)
	if err := p.WaitIdle(t.Context()); err != nil {
		t.Error(err)
	}
	equal(t, "the handler is told", told, []string{"job", "job", "offload", "offload"})
	equal(t, "panics", p.Panics(), uint64(5))
	is(t, "Err is the first", p.Err(), errCause)
	isTrue(t, "the loop is none the worse", l.Err() == nil && l.State() == eventloop.Running)
}

// A handler of a pool that ends its goroutine takes nothing with it: each job is over, each offload is answered, each is
// told of once, and the place of the worker is another goroutine's.
func TestPoolHandlerCallsGoexit(t *testing.T) {
	var told []string
	p := pool(t, 1, eventloop.WithPanicHandler(func(err *eventloop.PanicError) {
		told = append(told, err.In)
		runtime.Goexit()
	}))
	l := started(t)
	got := make(chan error, 2)
	for _, f := range []func(){func() { panic(errCause) }, runtime.Goexit} {
		p.Submit(f)
		eventloop.Offload(l, p, func(context.Context) (int, error) { f(); return 1, nil }, func(_ int, err error) { got <- err })
	}
	is(t, "the completion", comes(t, "it", got), errCause)
	is(t, "the completion", comes(t, "it", got), eventloop.ErrGoexit)
	is(t, "WaitIdle", p.WaitIdle(t.Context()), nil)
	equal(t, "the handler is told", told, []string{"job", "offload", "job", "offload"})
	equal(t, "panics, with those of the handler", p.Panics(), uint64(8))
	equal(t, "under way", l.Counts(), eventloop.Counts{})
	drains(t, l.Stop())
}

// sequence, "What about panic-during-shutdown?": in the drain a panic costs nothing but itself.
func TestPanicInTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startedIn(t, t.Context())
		ran := 0
		l.Post(func() { time.Sleep(time.Second) })
		for range 3 {
			l.Post(func() { ran++; panic("ouch") })
		}
		drains(t, l.Stop())
		equal(t, "callbacks", ran, 3)
		equal(t, "panics", l.Stats().Snapshot().Panics, uint64(3))
		equal(t, "executed", l.Stats().Snapshot().Executed, uint64(4))
	})
}
