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
	"github.com/swansong-go/swansong/internal/testkit"
)

// The function main waits for the shutdown signal. When main returns, the loop drains.
// docs/internals/eventloop.md#run
func TestRun_DrainsWhenMainReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := eventloop.New(t.Context())
		handle, stats := l.ShutdownHandle(), l.Stats()
		time.AfterFunc(time.Second, handle.Trigger)
		isTrue(t, "not yet", !handle.IsShutdown())
		ran := 0
		err := l.Run(context.Background(), func(ctx context.Context) error {
			testkit.Equal(t, "state", l.State(), eventloop.Running)
			l.Post(func() { ran++ })
			<-handle.Signal()
			isTrue(t, "triggered, and the loop goes on", handle.IsShutdown() && l.State() == eventloop.Running && ctx.Err() == nil)
			l.Post(func() { time.Sleep(time.Second); ran++ })
			return errCause
		})
		testkit.ErrorIs(t, "Run returns what main did", err, errCause)
		testkit.Equal(t, "callbacks", ran, 2)
		testkit.Equal(t, "state", l.State(), eventloop.Stopped)
		testkit.Equal(t, "counters", stats.Snapshot(), eventloop.Snapshot{Accepted: 2, Executed: 2})
	})
}

// Run uses the goroutine of its caller for the loop.
func TestRun_UsesCallersGoroutine(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	l := eventloop.New(context.Background(), eventloop.WithOSThread())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l := eventloop.New(context.Background())
		l.Run(context.Background(), func(context.Context) error {
			l.Post(runtime.Goexit) // this callback ends the goroutine that has called Run
			<-l.Scope().Done()
			return nil
		})
		t.Error("Run returned in a goroutine that should have ended")
	}()
	receive(t, "the end of the goroutine", ended)
	testkit.ErrorIs(t, "Run", l.Run(context.Background(), func(context.Context) error { return nil }), nil)
}

func TestRun_StopOrPanicEndsContextOfMain(t *testing.T) {
	for name, stop := range map[string]func(l *eventloop.Loop, cancel context.CancelFunc){
		"Stop":             func(l *eventloop.Loop, _ context.CancelFunc) { l.Stop() },
		"Stop on the loop": func(l *eventloop.Loop, _ context.CancelFunc) { l.Post(func() { l.Stop() }) },
		"its context":      func(_ *eventloop.Loop, cancel context.CancelFunc) { cancel() },
		"a panic":          func(l *eventloop.Loop, _ context.CancelFunc) { l.Post(func() { panic("ouch") }) },
	} {
		t.Run(name, func(t *testing.T) {
			app := ctxshutdown.New(context.Background())
			l := eventloop.New(app, stopsAfterPanic)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			err := l.Run(ctx, func(ctx context.Context) error {
				stop(l, cancel)
				<-ctx.Done()
				return context.Cause(ctx)
			})
			var panicked *eventloop.PanicError
			testkit.Equal(t, "a panic in the error", errors.As(err, &panicked), name == "a panic")
			isTrue(t, "main has returned with the cause", err != nil)
			testkit.Equal(t, "state", l.State(), eventloop.Stopped)
			awaitDone(t, app.Shutdown())
		})
	}
}

// Run returns the error of main joined with the first panic, even if main returns nil.
func TestRun_ReturnsFirstPanicEvenIfMainReturnsNil(t *testing.T) {
	for _, result := range []error{nil, context.Canceled} {
		l := eventloop.New(context.Background(), stopsAfterPanic)
		err := l.Run(context.Background(), func(ctx context.Context) error {
			l.Post(func() { panic(errCause) })
			<-ctx.Done()
			return result
		})
		testkit.ErrorIs(t, "Run", err, errCause)
		testkit.Equal(t, "main's error in it", errors.Is(err, context.Canceled), result != nil)
	}
}

// The cause of the context of main says why the loop was stopped.
func TestRun_MainContextHasCauseOfStop(t *testing.T) {
	app := ctxshutdown.New(context.Background())
	l := eventloop.New(app)
	testkit.ErrorIs(t, "the cause", l.Run(context.Background(), func(ctx context.Context) error {
		app.ShutdownCause(errCause)
		<-ctx.Done()
		return context.Cause(ctx)
	}), errCause)
	awaitDone(t, app.Completion())
}

// If main calls Goexit, Run returns an error that reports the Goexit.
func TestRun_ReportsGoexitInMain(t *testing.T) {
	l := eventloop.New(context.Background())
	testkit.ErrorIs(t, "Run", l.Run(context.Background(), func(context.Context) error { runtime.Goexit(); return nil }), eventloop.ErrGoexit)
}

// While the function main that Run calls is running, the scope of the loop is not complete.
func TestRun_WaitsUntilMainReturns(t *testing.T) {
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
		testkit.Equal(t, "state", l.State(), eventloop.Stopped)
		testkit.Equal(t, "report", app.GuardReport().String(), "1 guard: app/loop ×1")
		awaitDone(t, done)
	})
}
