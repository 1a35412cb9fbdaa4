package eventloop_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/eventloop"
)

// sequence, Triggering shutdown: main waits for the signal, comes from anywhere; when it returns, the loop drains.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := eventloop.New(t.Context())
		handle, stats := l.ShutdownHandle(), l.Stats()
		time.AfterFunc(time.Second, handle.Trigger)
		isTrue(t, "not yet", !handle.IsShutdown())
		ran := 0
		err := l.Run(context.Background(), func(ctx context.Context) error {
			equal(t, "state", l.State(), eventloop.Running)
			l.Post(func() { ran++ })
			<-handle.Signal()
			isTrue(t, "triggered, and the loop goes on", handle.IsShutdown() && l.State() == eventloop.Running && ctx.Err() == nil)
			l.Post(func() { time.Sleep(time.Second); ran++ })
			return errCause
		})
		is(t, "Run returns what main did", err, errCause)
		equal(t, "callbacks", ran, 2)
		equal(t, "state", l.State(), eventloop.Stopped)
		equal(t, "counters", stats.Snapshot(), eventloop.Snapshot{Accepted: 2, Executed: 2})
	})
}

// The loop has the goroutine of the caller.
func TestRunOnTheCallersGoroutine(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	l := eventloop.New(context.Background(), eventloop.WithOSThread())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l := eventloop.New(context.Background())
		l.Run(context.Background(), func(context.Context) error {
			l.Post(runtime.Goexit) // ends the goroutine that Run was called on
			<-l.Scope().Done()
			return nil
		})
		t.Error("Run returns from a goroutine that was to end")
	}()
	comes(t, "the end of the goroutine", ended)
	is(t, "Run", l.Run(context.Background(), func(context.Context) error { return nil }), nil)
}

func TestRunEndsMain(t *testing.T) {
	for name, stop := range map[string]func(l *eventloop.Loop, cancel context.CancelFunc){
		"Stop":             func(l *eventloop.Loop, _ context.CancelFunc) { l.Stop() },
		"Stop on the loop": func(l *eventloop.Loop, _ context.CancelFunc) { l.Post(func() { l.Stop() }) },
		"its context":      func(_ *eventloop.Loop, cancel context.CancelFunc) { cancel() },
		"a panic":          func(l *eventloop.Loop, _ context.CancelFunc) { l.Post(func() { panic("ouch") }) },
	} {
		t.Run(name, func(t *testing.T) {
			app := ctxshutdown.New(context.Background())
			l := eventloop.New(app)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			err := l.Run(ctx, func(ctx context.Context) error {
				stop(l, cancel)
				<-ctx.Done()
				return context.Cause(ctx)
			})
			var panicked *eventloop.PanicError
			equal(t, "a panic in the error", errors.As(err, &panicked), name == "a panic")
			isTrue(t, "main has returned with the cause", err != nil)
			equal(t, "state", l.State(), eventloop.Stopped)
			drains(t, app.Shutdown())
		})
	}
}

// Run returns what main did joined with what has panicked, also where main has nothing to say.
func TestRunReturnsThePanic(t *testing.T) {
	for _, result := range []error{nil, context.Canceled} {
		l := eventloop.New(context.Background())
		err := l.Run(context.Background(), func(ctx context.Context) error {
			l.Post(func() { panic(errCause) })
			<-ctx.Done()
			return result
		})
		is(t, "Run", err, errCause)
		equal(t, "main's error in it", errors.Is(err, context.Canceled), result != nil)
	}
}

// main learns why it is to end.
func TestMainLearnsTheCause(t *testing.T) {
	app := ctxshutdown.New(context.Background())
	l := eventloop.New(app)
	is(t, "the cause", l.Run(context.Background(), func(ctx context.Context) error {
		app.ShutdownCause(errCause)
		<-ctx.Done()
		return context.Cause(ctx)
	}), errCause)
	drains(t, app.Completion())
}

// main may end its goroutine, and has then returned no result.
func TestMainCallsGoexit(t *testing.T) {
	l := eventloop.New(context.Background())
	is(t, "Run", l.Run(context.Background(), func(context.Context) error { runtime.Goexit(); return nil }), eventloop.ErrGoexit)
}

// While main is there the scope is not complete.
func TestMainIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		app := ctxshutdown.New(t.Context(), ctxshutdown.WithName("app"))
		l := eventloop.New(app)
		go l.Run(context.Background(), func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Second)
			return nil
		})
		synctest.Wait()
		done := app.Shutdown()
		synctest.Wait()
		equal(t, "state", l.State(), eventloop.Stopped)
		equal(t, "report", app.GuardReport().String(), "1 guard: app/loop ×1")
		drains(t, done)
	})
}
