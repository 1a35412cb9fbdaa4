package eventloop_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/eventloop"
	"go.uber.org/goleak"
)

// The contract is that of two documents. Tests name the one they are about: "lifecycle" is the shutdown and drain contract
// of an event loop with states, "sequence" the shutdown sequence of a runtime with a trigger, a quiescence and counters.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errCause = errors.New("the cause")

// tooLong is for broken code.
const tooLong = 20 * time.Second

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func isTrue(t *testing.T, what string, ok bool) {
	t.Helper()
	if !ok {
		t.Errorf("not so: %s", what)
	}
}

// drains waits for a completion that must come.
func drains(t *testing.T, done *ctxshutdown.Completion) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	defer cancel()
	if err := done.Wait(ctx); err != nil {
		t.Fatal(err)
	}
}

// comes waits for a channel that must be closed, or sent to.
func comes[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(tooLong):
		t.Fatalf("does not come: %s", what)
	}
	return v
}

func is(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// started returns a running loop that the test stops at its end.
func started(t *testing.T, opts ...eventloop.Option) *eventloop.Loop {
	t.Helper()
	return startedIn(t, context.Background(), opts...)
}

func startedIn(t *testing.T, ctx context.Context, opts ...eventloop.Option) *eventloop.Loop {
	t.Helper()
	l := eventloop.New(ctx, opts...)
	if err := l.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { drains(t, l.Stop()) })
	return l
}

// pool returns a pool that the test stops at its end.
func pool(t *testing.T, workers int, opts ...eventloop.Option) *eventloop.Pool {
	t.Helper()
	p := eventloop.NewPool(context.Background(), workers, opts...)
	t.Cleanup(func() { drains(t, p.Stop()) })
	return p
}

// busy has the loop wait in a callback, until the function that it returns is called.
func busy(t *testing.T, l *eventloop.Loop) (free func()) {
	t.Helper()
	entered, release := make(chan struct{}), make(chan struct{})
	isTrue(t, "accepted", l.Post(func() { close(entered); <-release }))
	comes(t, "the callback", entered)
	return func() { close(release) }
}

// does runs f on the loop, and waits for it. Who then looks at the counters drains the loop first, or waits for its bubble: a callback
// is counted after it.
func does(t *testing.T, l *eventloop.Loop, f func()) {
	t.Helper()
	done := make(chan struct{})
	if !l.Post(func() { defer close(done); f() }) {
		t.Fatal("refused")
	}
	comes(t, "the callback", done)
}

// reads has so many goroutines read the counts of a loop until it is told to stop. For that they need what everybody needs
// who queues and who sleeps.
func reads(l *eventloop.Loop, n int) *sync.WaitGroup {
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
	return func() { t.Errorf("runs: %s", what) }
}
