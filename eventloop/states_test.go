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
	"github.com/swansong-go/swansong/internal/testkit"
)

// inState runs f with a loop in the given state, and ends the loop afterwards.
func inState(t *testing.T, state eventloop.State, f func(t *testing.T, l *eventloop.Loop)) {
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
			receive(t, "the init function", entered)
			finish = func() { close(release); receive(t, "the start", startedUp) }
		case eventloop.Running, eventloop.Stopping, eventloop.Stopped:
			if err := l.Start(); err != nil {
				t.Fatal(err)
			}
			if state == eventloop.Stopping {
				free := block(t, l)
				finish = free
				l.Stop()
			}
			if state == eventloop.Stopped {
				awaitDone(t, l.Stop())
			}
		}
		testkit.Equal(t, "state", l.State(), state)
		f(t, l)
		finish()
		awaitDone(t, l.Stop())
		testkit.Equal(t, "state", l.State(), eventloop.Stopped)
	})
}

var states = []eventloop.State{eventloop.Idle, eventloop.Starting, eventloop.Running, eventloop.Stopping, eventloop.Stopped}

// Post accepts callbacks in the Running state only, and a refused callback never runs.
// docs/internals/eventloop.md#post
func TestPost_IsAcceptedOnlyWhileRunning(t *testing.T) {
	for _, state := range states {
		inState(t, state, func(t *testing.T, l *eventloop.Loop) {
			if state != eventloop.Running {
				isTrue(t, "Post refuses", !l.Post(never(t, "a refused callback")))
				s := l.Stats().Snapshot()
				testkit.Equal(t, "refused", s.Refused, uint64(1))
				testkit.Equal(t, "of these, too late", s.CrossQueueUndrained == 1, state == eventloop.Stopping)
				return
			}
			runOn(t, l, func() {})
			testkit.Equal(t, "refused", l.Stats().Snapshot().Refused, uint64(0))
		})
	}
}

// Timers, offloads and handles are accepted only in the documented states. In other states, the
// error names the reason.
func TestLoop_RefusesTimersAndOffloadsBeforeStartAndAfterStop(t *testing.T) {
	for _, state := range states {
		inState(t, state, func(t *testing.T, l *eventloop.Loop) {
			why := map[eventloop.State]error{eventloop.Idle: eventloop.ErrNotRunning, eventloop.Starting: eventloop.ErrNotRunning,
				eventloop.Stopping: eventloop.ErrStopped, eventloop.Stopped: eventloop.ErrStopped}[state]
			p := newPool(t, 1)
			ran := make(chan struct{}, 3)
			run := func() {
				ran <- struct{}{}
				if why != nil {
					t.Error("a refused function was called")
				}
			}
			timer, err := l.After(-1, run)
			testkit.ErrorIs(t, "After", err, why)
			isTrue(t, "no timer where there is an error", (timer == nil) == (why != nil))
			timer, err = l.Every(time.Hour, run)
			testkit.ErrorIs(t, "Every", err, why)
			isTrue(t, "no timer where there is an error", (timer == nil) == (why != nil))
			err = eventloop.Offload(l, p, func(context.Context) (int, error) { run(); return 1, nil }, func(int, error) { run() })
			testkit.ErrorIs(t, "Offload", err, why)
			if why == nil {
				for _, what := range []string{"the timer", "the work", "its completion"} {
					receive(t, what, ran)
				}
				isTrue(t, "the ticking one is pending", timer.Stop())
			}
			h, ok := l.Handle()
			testkit.Equal(t, "Handle", ok, state != eventloop.Stopping && state != eventloop.Stopped)
			if ok {
				h.Release()
			}
		})
	}
}

func TestState_StringNamesState(t *testing.T) {
	testkit.Equal(t, "names", fmt.Sprint(states, eventloop.State(9)), "[Idle Starting Running Stopping Stopped] State(?)")
}

// If a loop is stopped in any way while its init function runs, the loop ends.
// docs/internals/eventloop.md#states
func TestStop_DuringInitFunctionEndsLoop(t *testing.T) {
	for name, stop := range map[string]func(l *eventloop.Loop, cancel func()){
		"Stop":            func(l *eventloop.Loop, _ func()) { l.Stop() },
		"the scope above": func(l *eventloop.Loop, cancel func()) { cancel(); <-l.ShutdownHandle().Signal() },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			var l *eventloop.Loop
			l = eventloop.New(ctx, eventloop.WithInit(func() error {
				testkit.Equal(t, "state in init", l.State(), eventloop.Starting)
				stop(l, cancel)
				testkit.Equal(t, "state after it", l.State(), eventloop.Stopping)
				return nil
			}))
			testkit.ErrorIs(t, "Start", l.Start(), eventloop.ErrStopped)
			awaitDone(t, l.Stop())
			testkit.Equal(t, "state", l.State(), eventloop.Stopped)
			isTrue(t, "Post refuses", !l.Post(never(t, "a refused callback")))
			isTrue(t, "no failure", l.Err() == nil)
			cancel()
		})
	}
}

// One goroutine starts a loop while another one stops it. In either order, the loop ends, and all
// accepted callbacks have run.
func TestStop_EndsLoopWhenRacingStart(t *testing.T) {
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
		awaitDone(t, l.Stop())
		testkit.Equal(t, "state", l.State(), eventloop.Stopped)
		if s := l.Stats().Snapshot(); s.Accepted != s.Executed {
			t.Errorf("not all accepted callbacks have run: %+v", s)
		}
	}
}

// Many goroutines call Start or Run at the same time. One succeeds, and the others receive
// ErrStarted.
func TestStart_SucceedsOnceInConcurrentCalls(t *testing.T) {
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
			// Three calls have returned an error, so the last one may be a call of Run that runs
			// the loop. It returns only when the loop is stopped.
			if n == 3 && began == 0 {
				for l.State() != eventloop.Running {
					runtime.Gosched()
				}
				l.Stop()
			}
			switch err := receive(t, "a result", results); err {
			case nil:
				began++
			case eventloop.ErrStarted:
			default:
				t.Error(err)
			}
		}
		awaitDone(t, l.Stop())
		testkit.Equal(t, "those that have started it", began, 1)
		testkit.Equal(t, "calls of the init function", inits, 1)
		if t.Failed() {
			return
		}
	}
}

// If the scope of a loop is stopped before Start, the loop never runs, even if the goroutine that
// tells the loop of the stop does so only after Start.
func TestStart_FailsIfScopeWasStoppedBeforeStart(t *testing.T) {
	for range 500 {
		app := ctxshutdown.New(context.Background())
		l := eventloop.New(app, eventloop.WithInit(func() error { t.Error("the init function was called"); return nil }))
		app.Shutdown()
		testkit.ErrorIs(t, "Start", l.Start(), eventloop.ErrStopped)
		awaitDone(t, app.Completion())
		if t.Failed() {
			return
		}
	}
}

// A loop calls all functions on one goroutine. Functions of every kind increment the same variable
// without synchronization, so the race detector or the sum would reveal a second goroutine.
// docs/internals/eventloop.md#run
func TestLoop_RunsEverythingOnOneGoroutine(t *testing.T) {
	p := newPool(t, 4)
	owned := 0
	l := startLoop(t,
		eventloop.WithInit(func() error { owned++; return nil }),
		eventloop.WithPanicHandler(func(*eventloop.PanicError) bool { owned++; return true }))
	const posters, each = 4, 100
	var posting sync.WaitGroup
	for range posters {
		posting.Go(func() {
			for range each {
				l.Post(func() { owned++ })
				// The panic handler of this loop increments owned, too.
				l.Post(func() { owned++; panic(errCause) })
				timer := make(chan struct{})
				l.After(0, func() { owned++; close(timer) })
				eventloop.Offload(l, p, func(context.Context) (int, error) { return 1, nil }, func(n int, _ error) { owned += n })
				eventloop.OffloadTimeout(l, p, 0, func(context.Context) (int, error) { return 1, nil }, func(int, error) { owned++ })
				<-timer
			}
		})
	}
	posting.Wait()
	testkit.ErrorIs(t, "WaitIdle", p.WaitIdle(t.Context()), nil)
	awaitDone(t, l.Stop())
	testkit.Equal(t, "calls", owned, 1+posters*each*6)
}

// A loop that is created in a stopped scope cannot be started.
func TestStart_FailsIfLoopWasCreatedInStoppedScope(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	l := eventloop.New(ctx, eventloop.WithInit(func() error { t.Error("the init function was called"); return nil }))
	testkit.ErrorIs(t, "Start", l.Start(), eventloop.ErrStopped)
	testkit.Equal(t, "state", l.State(), eventloop.Stopped)
	testkit.ErrorIs(t, "Run", eventloop.New(ctx).Run(context.Background(), func(context.Context) error { t.Error("main was called"); return nil }), eventloop.ErrStopped)
}

func TestWithInit_ErrorIsReturnedByStart(t *testing.T) {
	l := eventloop.New(context.Background(), eventloop.WithInit(func() error { return errCause }))
	testkit.ErrorIs(t, "Start", l.Start(), errCause)
	awaitDone(t, l.Stop())
	testkit.ErrorIs(t, "Err", l.Err(), errCause)
	testkit.ErrorIs(t, "the cause of the scope", context.Cause(l.Scope()), errCause)
	testkit.Equal(t, "state", l.State(), eventloop.Stopped)
	isTrue(t, "no counter", l.Stats().Snapshot() == eventloop.Snapshot{})

	l = eventloop.New(context.Background(), eventloop.WithInit(func() error { return errCause }))
	testkit.ErrorIs(t, "Run", l.Run(context.Background(), func(context.Context) error { t.Error("main was called"); return nil }), errCause)
	isTrue(t, "init is what failed", !errors.Is(l.Err(), eventloop.ErrGoexit))
}
