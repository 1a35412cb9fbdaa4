package eventloop_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/eventloop"
	"github.com/swansong-go/swansong/internal/testkit"
)

// Every method that waits for a loop or a pool returns ErrInCallback if a function that a loop runs
// calls it, directly or through any number of other functions.
// docs/internals/eventloop.md#waiting-in-a-callback
func TestWaits_InCallbacksReturnErrInCallback(t *testing.T) {
	for _, row := range []struct {
		name string
		call func(l *eventloop.Loop, p *eventloop.Pool, f func())
	}{
		{"callback", func(l *eventloop.Loop, _ *eventloop.Pool, f func()) { l.Post(f) }},
		{"timer", func(l *eventloop.Loop, _ *eventloop.Pool, f func()) { l.After(0, f) }},
		{"completion", func(l *eventloop.Loop, p *eventloop.Pool, f func()) {
			eventloop.Offload(l, p, func(context.Context) (int, error) { return 1, nil }, func(int, error) { f() })
		}},
		{"deep callback", func(l *eventloop.Loop, _ *eventloop.Pool, f func()) { l.Post(func() { nested(200, f) }) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := startedIn(t, t.Context(), eventloop.WithQueueLimit(1))
				p := eventloop.NewPool(t.Context(), 1, eventloop.WithQueueLimit(1))
				end, began, ran := make(chan struct{}), time.Now(), false
				row.call(l, p, func() {
					ran = true
					for l.Post(nop) {
					}
					for !p.Submit(func() { <-end }) {
						// the pool has room when the worker has counted the offload as finished
						runtime.Gosched()
					}
					eventloop.Async(l, time.Hour, func(_ context.Context, c func(int, error)) { go func() { <-end; c(1, nil) }() }, func(int, error) {})
					testkit.ErrorIs(t, "Quiesce", l.Quiesce(time.Hour), eventloop.ErrInCallback)
					testkit.ErrorIs(t, "WaitRunners", l.WaitRunners(t.Context()), eventloop.ErrInCallback)
					testkit.ErrorIs(t, "WaitIdle", p.WaitIdle(t.Context()), eventloop.ErrInCallback)
					testkit.ErrorIs(t, "PostWait", l.PostWait(t.Context(), never(t, "a refused callback")), eventloop.ErrInCallback)
					testkit.ErrorIs(t, "SubmitWait", p.SubmitWait(t.Context(), never(t, "a refused job")), eventloop.ErrInCallback)
					testkit.ErrorIs(t, "Wait", l.Stop().Wait(context.Background()), eventloop.ErrInCallback)
				})
				synctest.Wait()
				isTrue(t, "the function has run", ran)
				testkit.Equal(t, "it waited", time.Since(began), time.Duration(0))
				close(end)
				awaitDone(t, l.Stop())
				awaitDone(t, p.Stop())
			})
		})
	}
}

func nested(depth int, f func()) {
	if depth == 0 {
		f()
		return
	}
	nested(depth-1, f)
}

// An init function that waits for its own loop receives ErrInCallback, too.
// docs/internals/eventloop.md#waiting-in-a-callback
func TestWaits_InInitFunctionAreRefused(t *testing.T) {
	var l *eventloop.Loop
	l = eventloop.New(t.Context(), eventloop.WithInit(func() error { return l.Quiesce(time.Hour) }))
	testkit.ErrorIs(t, "Start", l.Start(), eventloop.ErrInCallback)
	awaitDone(t, l.Stop())
}

// In a callback, a wait that has nothing to wait for, or whose time is over, returns as on any
// other goroutine. Waits on goroutines that a callback starts, in main of Run and in jobs are
// allowed. docs/internals/eventloop.md#waiting-in-a-callback
func TestWaits_InJobsAndGoroutinesOfCallbacksAreAllowed(t *testing.T) {
	l, p := startLoop(t), newPool(t, 1)
	runOn(t, l, func() {
		testkit.ErrorIs(t, "WaitRunners", l.WaitRunners(t.Context()), nil)
		testkit.ErrorIs(t, "WaitIdle", p.WaitIdle(t.Context()), nil)
		testkit.ErrorIs(t, "PostWait", l.PostWait(t.Context(), nop), nil)
		testkit.ErrorIs(t, "Quiesce without a wait", l.Quiesce(0), context.DeadlineExceeded)
		ended, cancel := context.WithCancelCause(t.Context())
		cancel(errCause)
		testkit.ErrorIs(t, "Wait whose context has ended", l.Scope().Completion().Wait(ended), errCause)
	})
	waited := make(chan error, 2)
	runOn(t, l, func() { go func() { waited <- l.Quiesce(tooLong) }() })
	testkit.ErrorIs(t, "Quiesce on a goroutine that a callback started", receive(t, "Quiesce", waited), nil)
	isTrue(t, "submitted", p.Submit(func() { waited <- l.Quiesce(tooLong) }))
	testkit.ErrorIs(t, "Quiesce in a job", receive(t, "Quiesce", waited), nil)
	m := eventloop.New(t.Context())
	testkit.ErrorIs(t, "Run", m.Run(t.Context(), func(context.Context) error {
		isTrue(t, "accepted", m.Post(nop))
		return m.Quiesce(tooLong)
	}), nil)
	app := ctxshutdown.New(t.Context())
	release := make(chan struct{})
	app.Go(func(context.Context) { <-release })
	runOn(t, l, func() {
		time.AfterFunc(time.Millisecond, func() { close(release) })
		testkit.ErrorIs(t, "Wait for a scope that is no loop's", app.Shutdown().Wait(context.Background()), nil)
	})
}
