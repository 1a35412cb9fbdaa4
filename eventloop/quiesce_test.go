package eventloop_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/eventloop"
	"github.com/swansong-go/swansong/internal/testkit"
)

// Quiesce returns when the queue is empty and nothing is running, and not before.
// docs/internals/eventloop.md#quiesce
func TestQuiesce_ReturnsWhenNoFunctionRunsOrIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := startedIn(t, t.Context()), eventloop.NewPool(t.Context(), 1)
		testkit.ErrorIs(t, "Quiesce of an idle loop", l.Quiesce(0), nil)
		var over []string
		l.Post(func() {
			time.Sleep(time.Second)
			eventloop.Offload(l, p, func(context.Context) (int, error) { time.Sleep(time.Second); return 1, nil }, func(int, error) {
				over = append(over, "completion")
				l.Post(func() { time.Sleep(time.Second); over = append(over, "callback") })
			})
		})
		h, _ := l.Handle()
		time.AfterFunc(10*time.Second, func() {
			h.Post(func() { over = append(over, "handle's callback") })
			h.Release()
			isTrue(t, "a released handle refuses", !h.Post(never(t, "a callback of a released handle")))
			h.Release()
		})
		ticks := 0
		tick, _ := l.Every(3*time.Second, func() { ticks++ })
		began := time.Now()
		testkit.ErrorIs(t, "Quiesce", l.Quiesce(time.Hour), nil)
		testkit.Equal(t, "it took", time.Since(began), 10*time.Second)
		synctest.Wait()
		testkit.Equal(t, "over", over, []string{"completion", "callback", "handle's callback"})
		testkit.Equal(t, "ticks, which it does not wait for", ticks, 3)
		isTrue(t, "the ticking goes on", tick.Stop())
		awaitDone(t, p.Stop())
	})
}

// The error of Quiesce contains the current counts, and Quiesce can be called again.
// docs/internals/eventloop.md#quiesce
func TestQuiesce_ErrorOfTimeoutHasCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := startedIn(t, t.Context()), eventloop.NewPool(t.Context(), 5)
		runOn(t, l, func() {})
		end := make(chan struct{})
		l.Every(time.Hour, never(t, "a timer"))
		for range 2 {
			l.Post(func() { <-end })
		}
		l.Post(func() {})
		synctest.Wait()
		for range 4 {
			eventloop.Offload(l, p, func(context.Context) (int, error) { <-end; return 1, nil }, func(int, error) {})
		}
		for range 5 {
			h, _ := l.Handle()
			go func() { <-end; h.Release() }()
		}
		for _, timeout := range []time.Duration{time.Second, 0, -time.Second} {
			began := time.Now()
			var err *eventloop.QuiesceTimeoutError
			if !errors.As(l.Quiesce(timeout), &err) {
				t.Fatal("Quiesce returned nil")
			}
			testkit.Equal(t, "error", err, &eventloop.QuiesceTimeoutError{
				Timeout: timeout, State: eventloop.Running, Counts: eventloop.Counts{Queued: 3, Offloads: 4, Handles: 5, Timers: 1}})
			testkit.Equal(t, "message", err.Error(), fmt.Sprintf(
				"eventloop: Quiesce: the loop was not quiescent after %v, in state Running: 3 queued, 4 offloads running, 5 handles held, 1 timer pending; stop the producers, let running work return, or wait longer", timeout))
			testkit.ErrorIs(t, "it", err, context.DeadlineExceeded)
			testkit.Equal(t, "it took", time.Since(began), max(timeout, 0))
		}
		close(end)
		testkit.ErrorIs(t, "Quiesce, again", l.Quiesce(time.Second), nil)
		awaitDone(t, p.Stop())
	})
}

// If a callback always posts itself again, the loop is never quiescent.
func TestQuiesce_TimesOutOnEndlessPosts(t *testing.T) {
	l := startLoop(t)
	var again func()
	var enough atomic.Bool
	again = func() {
		if !enough.Load() {
			l.Post(again)
		}
	}
	l.Post(again)
	var err *eventloop.QuiesceTimeoutError
	isTrue(t, "it times out", errors.As(l.Quiesce(10*time.Millisecond), &err))
	// The callback has posted itself and may not have returned yet.
	isTrue(t, "one or two are queued", err != nil && (err.Queued == 1 || err.Queued == 2))
	enough.Store(true)
	testkit.ErrorIs(t, "Quiesce, when it is over", l.Quiesce(tooLong), nil)
	testkit.Equal(t, "counts", l.Counts(), eventloop.Counts{})
}

// Before a loop is started, nothing can be queued, but handles may be held.
func TestQuiesce_BeforeStartWaitsForHeldHandles(t *testing.T) {
	l := eventloop.New(context.Background())
	testkit.ErrorIs(t, "Quiesce", l.Quiesce(tooLong), nil)
	h, ok := l.Handle()
	isTrue(t, "a handle before the start", ok)
	var err *eventloop.QuiesceTimeoutError
	isTrue(t, "it waits for it", errors.As(l.Quiesce(0), &err) && err.Counts == eventloop.Counts{Handles: 1})
	h.Release()
	testkit.ErrorIs(t, "Quiesce", l.Quiesce(tooLong), nil)
	awaitDone(t, l.Stop())
	testkit.ErrorIs(t, "Quiesce after the stop", l.Quiesce(0), nil)
}

// Quiesce also returns if the loop is stopped while Quiesce waits, or is never started.
func TestQuiesce_ReturnsWhenLoopEnds(t *testing.T) {
	for range 300 {
		l := eventloop.New(context.Background(), eventloop.WithInit(func() error { return nil }))
		var racing sync.WaitGroup
		racing.Go(func() { l.Start(); l.Post(func() {}) })
		racing.Go(func() { l.Stop() })
		for range 2 {
			racing.Go(func() {
				if err := l.Quiesce(tooLong); err != nil && !errors.Is(err, eventloop.ErrStopped) { // Quiesce returns ErrStopped if Post was called after the stop
					t.Error(err)
				}
			})
		}
		racing.Wait()
	}
}

// When Run has returned, the loop can no longer run callbacks. So Quiesce returns an error if the
// loop has refused callbacks since it was stopped. docs/internals/eventloop.md#quiesce
func TestQuiesce_FailsAfterRunIfPostWasRefusedSinceStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := eventloop.New(t.Context())
		isTrue(t, "refused before the start", !l.Post(never(t, "a callback before the start")))
		testkit.ErrorIs(t, "Run", l.Run(t.Context(), func(context.Context) error { return nil }), nil)
		testkit.ErrorIs(t, "Quiesce with nothing refused since the stop", l.Quiesce(time.Hour), nil)
		h := make(chan bool)
		go func() { h <- l.Post(never(t, "a callback after the stop")) }()
		isTrue(t, "refused", !<-h)
		err := l.Quiesce(time.Hour)
		testkit.ErrorIs(t, "Quiesce", err, eventloop.ErrStopped)
		testkit.Equal(t, "message", err.Error(), "eventloop: Quiesce was called after the end of the loop, which has refused 1 callback since its stop; "+
			"stop the producers and call Quiesce before Stop, or before main of Run returns: "+eventloop.ErrStopped.Error())
	})
}

// With WithShutdownCheck, a loop reports the offloads, handles and refused callbacks that were left
// when it ended, and reports nothing after a shutdown in order.
// docs/internals/eventloop.md#counters
func TestWithShutdownCheck_ReportsOffloadsAndHandlesLeftAtEnd(t *testing.T) {
	for _, row := range []struct {
		name  string
		leave func(l *eventloop.Loop) (end func())
		want  string
	}{
		{"nothing", func(*eventloop.Loop) func() { return nop }, ""},
		{"a handle", func(l *eventloop.Loop) func() { h, _ := l.Handle(); return h.Release },
			"ended with 0 offloads running and 1 handle held, and has refused 0 callbacks"},
		{"an operation that has timed out", func(l *eventloop.Loop) (end func()) {
			eventloop.Async(l, time.Second, func(_ context.Context, complete func(int, error)) { end = func() { complete(1, nil) } }, func(int, error) {})
			time.Sleep(time.Minute)
			return end
		}, "ended with 1 offload running and 0 handles held, and has refused 0 callbacks"},
		{"a producer", func(l *eventloop.Loop) func() {
			l.Post(func() { l.Stop(); l.Post(nop) })
			synctest.Wait()
			return nop
		}, "ended with 0 offloads running and 0 handles held, and has refused 1 callback"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := ""
				l := startedIn(t, t.Context(), eventloop.WithName("ui"), eventloop.WithShutdownCheck(func(err error) { got = err.Error() }))
				end := row.leave(l)
				l.Stop()
				synctest.Wait()
				testkit.Equal(t, "state", l.State(), eventloop.Stopped)
				want := ""
				if row.want != "" {
					want = `eventloop: loop "ui" ` + row.want + " since its stop; stop the producers, then call WaitIdle and Quiesce, then Stop"
				}
				testkit.Equal(t, "report", got, want)
				end()
			})
		})
	}
}

// Quiesce never returns nil while something is running. In the test, callbacks, offloads and timers
// start one another, so that something is always running.
func TestQuiesce_NeverReturnsNilWhileFunctionsRun(t *testing.T) {
	l, p := startLoop(t), newPool(t, 2)
	for range 300 {
		var over atomic.Bool
		l.Post(func() {
			eventloop.Offload(l, p, func(context.Context) (int, error) { return 1, nil }, func(int, error) {
				eventloop.Offload(l, p, func(context.Context) (int, error) { return 1, nil }, func(int, error) {
					l.Post(func() { over.Store(true) })
				})
			})
		})
		if err := l.Quiesce(tooLong); err != nil {
			t.Fatal(err)
		}
		if !over.Load() {
			t.Fatal("Quiesce returned nil while something was running")
		}
	}
}

// The error of Quiesce names the kind of function that is running, even if it is not a callback
// that Queued counts. docs/internals/eventloop.md#quiesce
func TestQuiesce_ErrorNamesKindOfRunningFunction(t *testing.T) {
	for _, row := range []struct {
		name  string
		hang  func(l *eventloop.Loop, until chan struct{})
		state eventloop.State
		want  eventloop.Counts
		text  string
	}{
		{"a timer", func(l *eventloop.Loop, until chan struct{}) { l.After(0, func() { <-until }) },
			eventloop.Running, eventloop.Counts{In: "timer"},
			`eventloop: Quiesce: the loop was not quiescent after 1s, in state Running: 0 queued, 0 offloads running, 0 handles held, 0 timers pending, ` +
				`running a function of the kind "timer"; stop the producers, let running work return, or wait longer`},
		{"a ticking one", func(l *eventloop.Loop, until chan struct{}) { l.Every(1, func() { <-until; l.Stop() }) },
			eventloop.Running, eventloop.Counts{In: "timer", Timers: 1}, ""},
		{"the handler of a timer's panic", func(l *eventloop.Loop, until chan struct{}) { l.After(0, func() { panic(until) }) },
			eventloop.Running, eventloop.Counts{In: "timer"}, ""},
		{"the handler of a callback's panic", func(l *eventloop.Loop, until chan struct{}) { l.Post(func() { panic(until) }) },
			eventloop.Running, eventloop.Counts{Queued: 1}, ""},
		{"a callback, in the drain", func(l *eventloop.Loop, until chan struct{}) { l.Post(func() { <-until }); l.Stop() },
			eventloop.Stopping, eventloop.Counts{Queued: 1}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := startedIn(t, t.Context(), eventloop.WithPanicHandler(func(err *eventloop.PanicError) bool { <-err.Value.(chan struct{}); return true }))
				until := make(chan struct{})
				row.hang(l, until)
				time.Sleep(time.Second)
				synctest.Wait()
				err := l.Quiesce(time.Second)
				testkit.Equal(t, "error", err, error(&eventloop.QuiesceTimeoutError{Timeout: time.Second, State: row.state, Counts: row.want}))
				if row.text != "" {
					testkit.Equal(t, "message", err.Error(), row.text)
				}
				close(until)
				testkit.ErrorIs(t, "Quiesce, again", l.Quiesce(time.Second), nil)
				testkit.Equal(t, "counts", l.Counts(), eventloop.Counts{})
			})
		})
	}
}

// The error of Quiesce names an init function that does not return, even if the loop has been
// stopped since.
func TestQuiesce_ErrorSaysThatInitFunctionStillRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := make(chan struct{})
		l := eventloop.New(t.Context(), eventloop.WithInit(func() error { <-until; return nil }))
		startedUp := make(chan error, 1)
		go func() { startedUp <- l.Start() }()
		synctest.Wait()
		for _, state := range []eventloop.State{eventloop.Starting, eventloop.Stopping} {
			testkit.Equal(t, "error", l.Quiesce(time.Second), error(&eventloop.QuiesceTimeoutError{
				Timeout: time.Second, State: state, Counts: eventloop.Counts{In: "init"}}))
			l.Stop()
		}
		close(until)
		testkit.ErrorIs(t, "Quiesce, when it has returned", l.Quiesce(time.Second), nil)
		testkit.ErrorIs(t, "Start", <-startedUp, eventloop.ErrStopped)
	})
}

// If the time-out is zero and the loop has nothing to run, Quiesce returns nil even if the loop's
// goroutine is not asleep yet. In the test, other goroutines read the counts to keep it awake
// longer.
func TestQuiesce_ZeroTimeoutReturnsNilIfLoopIsIdle(t *testing.T) {
	for range 20 {
		l := startLoop(t)
		testkit.ErrorIs(t, "Quiesce after Start", l.Quiesce(0), nil)
		reading := contend(l, 2)
		for range 20 {
			l.Post(nop)
			for l.Counts().Queued > 0 {
				runtime.Gosched()
			}
			testkit.ErrorIs(t, "Quiesce after the last callback", l.Quiesce(0), nil)
		}
		l.Stop()
		reading.Wait()
		if t.Failed() {
			return
		}
	}
}

// An error of Quiesce never shows only zeros, even if the last handle is released right after the
// time-out.
func TestQuiesce_ErrorNeverShowsOnlyZeroCounts(t *testing.T) {
	l := startLoop(t)
	for range 20_000 {
		h, ok := l.Handle()
		isTrue(t, "a handle", ok)
		released := make(chan struct{})
		go func() { h.Release(); close(released) }()
		if err := l.Quiesce(0); err != nil {
			isTrue(t, err.Error(), err.(*eventloop.QuiesceTimeoutError).Counts != eventloop.Counts{})
		}
		<-released
		if t.Failed() {
			return
		}
	}
}

// While Quiesce waits for a callback of the loop, a handle is created. Quiesce then also waits for
// the release of that handle.
func TestQuiesce_WaitsForHandleCreatedDuringCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startedIn(t, t.Context())
		free := block(t, l)
		began := time.Now()
		time.AfterFunc(time.Second, func() {
			h, ok := l.Handle()
			isTrue(t, "a handle", ok)
			time.AfterFunc(time.Second, h.Release)
			free()
		})
		testkit.ErrorIs(t, "Quiesce", l.Quiesce(time.Hour), nil)
		testkit.Equal(t, "it took", time.Since(began), 2*time.Second)
	})
}

// The work of an offload may return after its time-out and before its completion is queued. Quiesce
// still waits for that completion.
func TestQuiesce_WaitsForCompletionOfTimedOutOffload(t *testing.T) {
	l, p := startLoop(t), newPool(t, 2)
	for range 2_000 {
		// The loop writes this variable and the test reads it after Quiesce, so the race detector
		// checks the synchronization.
		over := false
		err := eventloop.OffloadTimeout(l, p, 10*time.Microsecond, func(ctx context.Context) (int, error) { <-ctx.Done(); return 1, nil },
			func(int, error) { over = true })
		testkit.ErrorIs(t, "OffloadTimeout", err, nil)
		testkit.ErrorIs(t, "Quiesce", l.Quiesce(tooLong), nil)
		if !over {
			t.Fatal("Quiesce returned nil before the completion of a time-out")
		}
	}
}

// Each producer holds a handle and is stopped before the loop. Quiesce counts the producers that
// have not been stopped. Callbacks that a producer posts after it has released its handle are
// refused and counted. docs/internals/eventloop.md#shutdown-handle
func TestQuiesce_CountsGoroutinesThatStillHoldHandles(t *testing.T) {
	l := startLoop(t)
	const producers = 3
	var stop [producers]chan struct{}
	stopped := make(chan *eventloop.Handle)
	for i := range producers {
		h, ok := l.Handle()
		isTrue(t, "a handle", ok)
		stop[i] = make(chan struct{})
		go func() {
			for running := true; running; {
				isTrue(t, "accepted", h.Post(nop))
				runtime.Gosched()
				select {
				case <-stop[i]:
					running = false
				default:
				}
			}
			h.Release()
			stopped <- h
		}()
	}
	for i := range producers {
		var err *eventloop.QuiesceTimeoutError
		isTrue(t, "Quiesce counts the producers that are left", errors.As(l.Quiesce(0), &err) && err.Handles == producers-i)
		close(stop[i])
		isTrue(t, "refused", !receive(t, "the end of a producer", stopped).Post(never(t, "a callback of a released handle")))
	}
	testkit.ErrorIs(t, "Quiesce", l.Quiesce(tooLong), nil)
	awaitDone(t, l.Stop())
	s := l.Stats().Snapshot()
	testkit.Equal(t, "counters", s, eventloop.Snapshot{Accepted: s.Accepted, Executed: s.Accepted, Refused: producers})
}
