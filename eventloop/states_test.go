package eventloop_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/eventloop"
)

// at has f run on a loop in each of the states, and brings the loop to its end after that.
func at(t *testing.T, state eventloop.State, f func(t *testing.T, l *eventloop.Loop)) {
	t.Run(state.String(), func(t *testing.T) {
		entered, release := make(chan struct{}), make(chan struct{})
		l := eventloop.New(context.Background(), eventloop.WithInit(func() error {
			if state == eventloop.Starting {
				close(entered)
				<-release
			}
			return nil
		}))
		startedUp := make(chan error, 1)
		finish := func() {}
		switch state {
		case eventloop.Starting:
			go func() { startedUp <- l.Start() }()
			comes(t, "the init function", entered)
			finish = func() { close(release); comes(t, "the start", startedUp) }
		case eventloop.Running, eventloop.Stopping, eventloop.Stopped:
			if err := l.Start(); err != nil {
				t.Fatal(err)
			}
			if state == eventloop.Stopping {
				free := busy(t, l)
				finish = free
				l.Stop()
			}
			if state == eventloop.Stopped {
				drains(t, l.Stop())
			}
		}
		equal(t, "state", l.State(), state)
		f(t, l)
		finish()
		drains(t, l.Stop())
		equal(t, "state", l.State(), eventloop.Stopped)
	})
}

var states = []eventloop.State{eventloop.Idle, eventloop.Starting, eventloop.Running, eventloop.Stopping, eventloop.Stopped}

// lifecycle, Lifecycle States and Post Contract: every row of both tables. Also the tests "Post before Start returns false
// and callback never executes" and "Post after Stop returns false and callback never executes".
func TestPostInEachState(t *testing.T) {
	for _, state := range states {
		at(t, state, func(t *testing.T, l *eventloop.Loop) {
			if state != eventloop.Running {
				isTrue(t, "Post refuses", !l.Post(never(t, "a refused callback")))
				s := l.Stats().Snapshot()
				equal(t, "refused", s.Refused, uint64(1))
				equal(t, "of these, too late", s.CrossQueueUndrained == 1, state == eventloop.Stopping)
				return
			}
			does(t, l, func() {})
			equal(t, "refused", l.Stats().Snapshot().Refused, uint64(0))
		})
	}
}

// The same for all else that a loop can be given, and for the errors that say why.
func TestTakingOnInEachState(t *testing.T) {
	for _, state := range states {
		at(t, state, func(t *testing.T, l *eventloop.Loop) {
			why := map[eventloop.State]error{eventloop.Idle: eventloop.ErrNotRunning, eventloop.Starting: eventloop.ErrNotRunning,
				eventloop.Stopping: eventloop.ErrStopped, eventloop.Stopped: eventloop.ErrStopped}[state]
			p := pool(t, 1)
			ran := make(chan struct{}, 3)
			run := func() {
				ran <- struct{}{}
				if why != nil {
					t.Error("runs, although it was refused")
				}
			}
			timer, err := l.After(-1, run)
			is(t, "After", err, why)
			isTrue(t, "no timer where there is an error", (timer == nil) == (why != nil))
			timer, err = l.Every(time.Hour, run)
			is(t, "Every", err, why)
			isTrue(t, "no timer where there is an error", (timer == nil) == (why != nil))
			err = eventloop.Offload(l, p, func(context.Context) (int, error) { run(); return 1, nil }, func(int, error) { run() })
			is(t, "Offload", err, why)
			if why == nil {
				for _, what := range []string{"the timer", "the work", "its completion"} {
					comes(t, what, ran)
				}
				isTrue(t, "the ticking one is pending", timer.Stop())
			}
			h, ok := l.Handle()
			equal(t, "Handle", ok, state != eventloop.Stopping && state != eventloop.Stopped)
			if ok {
				h.Release()
			}
		})
	}
}

func TestStateString(t *testing.T) {
	equal(t, "names", fmt.Sprint(states, eventloop.State(9)), "[Idle Starting Running Stopping Stopped] State(?)")
}

// lifecycle, Lifecycle States: the arrow "Stop() during init", from everywhere that a stop can come.
func TestStopDuringStart(t *testing.T) {
	for name, stop := range map[string]func(l *eventloop.Loop, cancel func()){
		"Stop":            func(l *eventloop.Loop, _ func()) { l.Stop() },
		"the scope above": func(l *eventloop.Loop, cancel func()) { cancel(); <-l.ShutdownHandle().Signal() },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			var l *eventloop.Loop
			l = eventloop.New(ctx, eventloop.WithInit(func() error {
				equal(t, "state in init", l.State(), eventloop.Starting)
				stop(l, cancel)
				equal(t, "state after it", l.State(), eventloop.Stopping)
				return nil
			}))
			is(t, "Start", l.Start(), eventloop.ErrStopped)
			drains(t, l.Stop())
			equal(t, "state", l.State(), eventloop.Stopped)
			isTrue(t, "Post refuses", !l.Post(never(t, "a refused callback")))
			isTrue(t, "no failure", l.Err() == nil)
			cancel()
		})
	}
}

// lifecycle, State Machine (Atomic CAS): two goroutines, one that starts and one that stops. Whatever wins, it ends, and what
// was accepted has run.
func TestStopRacesStart(t *testing.T) {
	for range 500 {
		l := eventloop.New(context.Background())
		var racing sync.WaitGroup
		racing.Go(func() {
			if err := l.Start(); err != nil && err != eventloop.ErrStopped {
				t.Error(err)
			}
			l.Post(func() {})
		})
		racing.Go(func() { l.Stop() })
		racing.Wait()
		drains(t, l.Stop())
		equal(t, "state", l.State(), eventloop.Stopped)
		if s := l.Stats().Snapshot(); s.Accepted != s.Executed {
			t.Errorf("%+v: what was accepted was not executed", s)
		}
	}
}

// lifecycle, State Machine (Atomic CAS): of many that start a loop at once, by Start and by Run, one does, and the others are
// told so.
func TestStartsRace(t *testing.T) {
	for range 300 {
		inits := 0
		l := eventloop.New(context.Background(), eventloop.WithInit(func() error { inits++; return nil }))
		main := func(ctx context.Context) error { <-ctx.Done(); return nil }
		results := make(chan error, 4)
		begin := make(chan struct{})
		for range 2 {
			go func() { <-begin; results <- l.Start() }()
			go func() { <-begin; results <- l.Run(context.Background(), main) }()
		}
		close(begin)
		began := 0
		for n := range 4 {
			if n == 3 && began == 0 { // the one that is left may be Run, which returns when the loop is told to stop
				for l.State() != eventloop.Running {
					runtime.Gosched()
				}
				l.Stop()
			}
			switch err := comes(t, "a result", results); err {
			case nil:
				began++
			case eventloop.ErrStarted:
			default:
				t.Error(err)
			}
		}
		drains(t, l.Stop())
		equal(t, "those that have started it", began, 1)
		equal(t, "calls of the init function", inits, 1)
		if t.Failed() {
			return
		}
	}
}

// A stop from above that comes before the start is never too late, although it reaches the loop on a goroutine of its own.
func TestStopFromAboveJustBeforeStart(t *testing.T) {
	for range 500 {
		app := ctxshutdown.New(context.Background())
		l := eventloop.New(app, eventloop.WithInit(func() error { t.Error("init runs"); return nil }))
		app.Shutdown()
		is(t, "Start", l.Start(), eventloop.ErrStopped)
		drains(t, app.Completion())
		if t.Failed() {
			return
		}
	}
}

// lifecycle, Thread Ownership: all that the loop runs runs on one goroutine. Each kind writes a variable that nothing guards,
// of which the race detector, or the sum, would tell.
func TestThreadOwnership(t *testing.T) {
	p := pool(t, 4)
	owned := 0
	l := started(t,
		eventloop.WithInit(func() error { owned++; return nil }),
		eventloop.WithPanicHandler(func(*eventloop.PanicError) { owned++ }))
	const posters, each = 4, 100
	var posting sync.WaitGroup
	for range posters {
		posting.Go(func() {
			for range each {
				l.Post(func() { owned++ })
				l.Post(func() { owned++; panic(errCause) }) // and the handler
				timer := make(chan struct{})
				l.After(0, func() { owned++; close(timer) })
				eventloop.Offload(l, p, func(context.Context) (int, error) { return 1, nil }, func(n int, _ error) { owned += n })
				eventloop.OffloadTimeout(l, p, 0, func(context.Context) (int, error) { return 1, nil }, func(int, error) { owned++ })
				<-timer
			}
		})
	}
	posting.Wait()
	is(t, "WaitIdle", p.WaitIdle(t.Context()), nil)
	drains(t, l.Stop())
	equal(t, "calls", owned, 1+posters*each*6)
}

// A scope that has been stopped starts nothing.
func TestStartInAStoppedScope(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	l := eventloop.New(ctx, eventloop.WithInit(func() error { t.Error("init runs"); return nil }))
	is(t, "Start", l.Start(), eventloop.ErrStopped)
	equal(t, "state", l.State(), eventloop.Stopped)
	is(t, "Run", eventloop.New(ctx).Run(context.Background(), func(context.Context) error { t.Error("main runs"); return nil }), eventloop.ErrStopped)
}

func TestInitFails(t *testing.T) {
	l := eventloop.New(context.Background(), eventloop.WithInit(func() error { return errCause }))
	is(t, "Start", l.Start(), errCause)
	drains(t, l.Stop())
	is(t, "Err", l.Err(), errCause)
	is(t, "the cause of the scope", context.Cause(l.Scope()), errCause)
	equal(t, "state", l.State(), eventloop.Stopped)
	isTrue(t, "no counter", l.Stats().Snapshot() == eventloop.Snapshot{})

	l = eventloop.New(context.Background(), eventloop.WithInit(func() error { return errCause }))
	is(t, "Run", l.Run(context.Background(), func(context.Context) error { t.Error("main runs"); return nil }), errCause)
	isTrue(t, "init is what failed", !errors.Is(l.Err(), eventloop.ErrGoexit))
}
