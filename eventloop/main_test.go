package eventloop_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/eventloop"
	"go.uber.org/goleak"
)

// The comments of the tests refer to the sections of docs/internals/eventloop.md that state the
// rules.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errCause = errors.New("the cause")

// tooLong is a time-out that is reached only if the code under test is broken.
const tooLong = 20 * time.Second

func isTrue(t *testing.T, what string, ok bool) {
	t.Helper()
	if !ok {
		t.Errorf("this should be true, but is not: %s", what)
	}
}

// awaitDone waits until a completion has resolved. If it does not resolve, the test fails.
func awaitDone(t *testing.T, done *ctxshutdown.Completion) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	defer cancel()
	if err := done.Wait(ctx); err != nil {
		t.Fatal(err)
	}
}

// receive waits until a channel is closed or receives a value. If neither happens, the test fails.
func receive[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(tooLong):
		t.Fatalf("waited in vain for %s", what)
	}
	return v
}

// startLoop returns a running loop that is stopped when the test ends.
func startLoop(t *testing.T, opts ...eventloop.Option) *eventloop.Loop {
	t.Helper()
	return startedIn(t, context.Background(), opts...)
}

// stopsAfterPanic makes a loop or a pool stop after a panic.
var stopsAfterPanic = eventloop.WithPanicHandler(func(*eventloop.PanicError) (resume bool) { return false })

func startedIn(t *testing.T, ctx context.Context, opts ...eventloop.Option) *eventloop.Loop {
	t.Helper()
	l := eventloop.New(ctx, opts...)
	if err := l.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { awaitDone(t, l.Stop()) })
	return l
}

// newPool returns a pool that is stopped when the test ends.
func newPool(t *testing.T, workers int, opts ...eventloop.Option) *eventloop.Pool {
	t.Helper()
	p := eventloop.NewPool(context.Background(), workers, opts...)
	t.Cleanup(func() { awaitDone(t, p.Stop()) })
	return p
}

// block posts a callback that blocks the loop until the returned function is called.
func block(t *testing.T, l *eventloop.Loop) (free func()) {
	t.Helper()
	entered, release := make(chan struct{}), make(chan struct{})
	isTrue(t, "accepted", l.Post(func() { close(entered); <-release }))
	receive(t, "the callback", entered)
	return func() { close(release) }
}

// runOn runs f on the loop and waits until it has run. The loop counts a callback only after it has
// returned. So a test that reads the counters must first drain the loop, or wait for its synctest
// bubble.
func runOn(t *testing.T, l *eventloop.Loop, f func()) {
	t.Helper()
	done := make(chan struct{})
	if !l.Post(func() { defer close(done); f() }) {
		t.Fatal("the loop has refused the callback")
	}
	receive(t, "the callback", done)
}

// contend starts n goroutines that read the counts of a loop until it is stopped. They contend for
// the lock that producers and the loop need.
func contend(l *eventloop.Loop, n int) *sync.WaitGroup {
	var reading sync.WaitGroup
	for range n {
		reading.Go(func() {
			for l.State() == eventloop.Running {
				l.Counts()
				runtime.Gosched()
			}
		})
	}
	return &reading
}

func never(t *testing.T, what string) func() {
	return func() { t.Errorf("this function should not have been called: %s", what) }
}
