package eventloop_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/eventloop"
	"github.com/swansong-go/swansong/internal/testkit"
)

const asDropper = "EVENTLOOP_TEST_DROPPER"

// TestHelperProcess_DropsLoops is the program that TestNew_LoopWithoutReferencesIsStopped starts.
// If it is run directly, it checks nothing.
func TestHelperProcess_DropsLoops(t *testing.T) {
	use, ok := droppers[os.Getenv(asDropper)]
	if !ok {
		return
	}
	app := ctxshutdown.New(context.Background())
	done := use(app)
	late := time.After(tooLong)
	for !testkit.IsClosed(done) {
		runtime.GC()
		select {
		case <-done:
		case <-time.After(10 * time.Millisecond): // collect again: the loop may be unreachable only now
		case <-late:
			t.Fatal("the loop has not been stopped")
		}
	}
	awaitDone(t, app.Shutdown())
}

// droppers create a loop, use it, and forget it. They return the Done channel of its scope.
var droppers = map[string]func(app *ctxshutdown.Swansong) <-chan struct{}{
	"idle": func(app *ctxshutdown.Swansong) <-chan struct{} {
		return eventloop.New(app, eventloop.WithName("ledger")).Scope().Done()
	},
	"running": func(app *ctxshutdown.Swansong) <-chan struct{} {
		l := eventloop.New(app, eventloop.WithName("ledger"))
		l.Start()
		return l.Scope().Done()
	},
	"used": func(app *ctxshutdown.Swansong) <-chan struct{} {
		l := eventloop.New(app, eventloop.WithName("ledger"))
		l.Start()
		for range 1000 {
			// until it has run, this callback keeps the Loop from being collected
			l.Post(func() { l.Counts() })
		}
		l.After(time.Millisecond, func() {})
		pool := eventloop.NewPool(app, 1)
		eventloop.Offload(l, pool, func(context.Context) (int, error) { return 1, nil }, func(int, error) { l.Counts() })
		return l.Scope().Done()
	},
}

// A Loop that is unreachable stops when it has nothing to do, even if it was never started. So it
// leaves no goroutine, and its parent scope can drain. A line on standard error names the call of
// New.
func TestNew_LoopWithoutReferencesIsStopped(t *testing.T) {
	want := regexp.MustCompile(`^eventloop: the event loop "ledger", created at drop_test\.go:\d+, was garbage collected without Stop and has been stopped\n$`)
	for name := range droppers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestHelperProcess_DropsLoops$")
			cmd.Env = append(os.Environ(), asDropper+"="+name)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			if out, err := cmd.Output(); err != nil {
				t.Errorf("the program failed: %v\n%s", err, out)
			}
			if !want.MatchString(stderr.String()) {
				t.Errorf("standard error:\n%s", stderr.String())
			}
		})
	}
}

// collect makes the runtime collect garbage and run cleanups, several times, so that the cleanup of
// a Loop that is unreachable has run.
func collect(t *testing.T) {
	t.Helper()
	for range 3 {
		cleaned := make(chan struct{})
		runtime.AddCleanup(new([16]byte), func(c chan struct{}) { close(c) }, cleaned)
		for end := time.Now().Add(tooLong); !testkit.IsClosed(cleaned); runtime.Gosched() {
			runtime.GC()
			if time.Now().After(end) {
				t.Fatal("the runtime has run no cleanup")
			}
		}
	}
}

// A pending timer keeps an unreachable loop running. Once the timer is stopped, the loop stops.
func TestTimer_StopOfLastTimerLetsUnreachableLoopEnd(t *testing.T) {
	app := ctxshutdown.New(t.Context())
	timer, scope := func() (*eventloop.Timer, *ctxshutdown.Swansong) {
		l := eventloop.New(app)
		l.Start()
		timer, _ := l.After(time.Hour, func() {})
		return timer, l.Scope()
	}()
	collect(t)
	testkit.Equal(t, "stopped while the timer is pending", scope.Err(), nil)
	isTrue(t, "the timer would have fired", timer.Stop())
	awaitDone(t, scope.Completion())
	awaitDone(t, app.Shutdown())
}

// An unreachable loop is not stopped while something needs it: a timer, a handle, a method value,
// the main function of Run, or an offload whose completion is still to come.
func TestNew_LoopWithoutReferencesRunsOnWhileTimerOrHandleNeedsIt(t *testing.T) {
	t.Run("timer", func(t *testing.T) {
		app := ctxshutdown.New(t.Context())
		var ticks atomic.Int64
		scope := func() *ctxshutdown.Swansong {
			l := eventloop.New(app)
			l.Start()
			l.Every(time.Millisecond, func() { ticks.Add(1) })
			return l.Scope()
		}()
		collect(t)
		for before := ticks.Load(); ticks.Load() < before+2 && scope.Err() == nil; {
			runtime.Gosched()
		}
		testkit.Equal(t, "stopped", scope.Err(), nil)
		awaitDone(t, app.Shutdown())
	})
	t.Run("handle", func(t *testing.T) {
		app := ctxshutdown.New(t.Context())
		h := func() *eventloop.Handle {
			l := eventloop.New(app)
			l.Start()
			h, _ := l.Handle()
			return h
		}()
		collect(t)
		isTrue(t, "accepted", h.Post(func() {}))
		h.Release()
		awaitDone(t, app.Shutdown())
	})
	t.Run("method value", func(t *testing.T) {
		app := ctxshutdown.New(t.Context())
		post := func() func(func()) bool {
			l := eventloop.New(app)
			l.Start()
			return l.Post
		}()
		collect(t)
		isTrue(t, "accepted", post(func() {}))
		awaitDone(t, app.Shutdown())
	})
	t.Run("Run", func(t *testing.T) {
		app := ctxshutdown.New(t.Context())
		err := eventloop.New(app).Run(t.Context(), func(ctx context.Context) error {
			collect(t)
			return ctx.Err()
		})
		testkit.Equal(t, "error", err, nil)
	})
	t.Run("bubble of synctest", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			app := ctxshutdown.New(t.Context())
			func() { eventloop.New(app).Start() }()
			for range 5 {
				runtime.GC()
				time.Sleep(time.Second)
			}
			testkit.Equal(t, "stopped", app.Shutdown().Wait(context.Background()), nil)
		})
	})
	t.Run("offload", func(t *testing.T) {
		app := ctxshutdown.New(t.Context())
		release, done := make(chan struct{}), make(chan error, 1)
		func() {
			l := eventloop.New(app)
			l.Start()
			eventloop.Async(l, time.Hour, func(_ context.Context, complete func(int, error)) {
				go func() { <-release; complete(1, nil) }()
			}, func(_ int, err error) { done <- err })
		}()
		collect(t)
		close(release)
		testkit.Equal(t, "completion", receive(t, "the completion", done), nil)
		awaitDone(t, app.Shutdown())
	})
}
