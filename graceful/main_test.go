package graceful_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"go.uber.org/goleak"
)

// The test binary plays a part when it is started by start.
func TestMain(m *testing.M) {
	for _, v := range []string{"CTXSHUTDOWN_TRACE", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "TERMINATION_GRACE_PERIOD_SECONDS"} {
		if os.Getenv(roleVar) == "" {
			os.Unsetenv(v)
		}
	}
	if role := os.Getenv(roleVar); role != "" {
		os.Exit(play(role))
	}
	goleak.VerifyTestMain(m)
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// text is the text of an error, with none for nil.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func process(t *testing.T, ctx context.Context) *graceful.Process {
	t.Helper()
	p, ok := graceful.FromContext(ctx)
	if !ok {
		t.Fatal("there is no Process in the scope of Run")
	}
	return p
}

// A step is a rung and when it was entered, counted from the beginning of the run.
type step struct {
	Rung graceful.Rung
	At   time.Duration
}

// A path is how a process has gone down the ladder.
type path struct {
	mu    sync.Mutex
	began time.Time
	steps []step
}

func (p *path) watch(st graceful.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.began.IsZero() {
		p.began = st.Since
	}
	if n := len(p.steps); n == 0 || p.steps[n-1].Rung != st.Rung {
		p.steps = append(p.steps, step{st.Rung, st.Since.Sub(p.began)})
	}
}

// A testRun is a run in a bubble, which begins to stop after a second by the end of its context.
type testRun struct {
	*testing.T
	path path
	out  output
}

// bubble runs f in a bubble, where nothing takes time but what waits. No signals go there; they are in signal_test.go.
func bubble(t *testing.T, f func(t *testRun)) {
	synctest.Test(t, func(t *testing.T) { f(&testRun{T: t}) })
}

// run runs f and returns what became of it.
func (t *testRun) run(f func(s *ctxshutdown.Swansong) error, opts ...graceful.Option) error {
	ctx, cancel := context.WithCancelCause(t.Context())
	timer := time.AfterFunc(time.Second, func() { cancel(errEnough) })
	defer timer.Stop()
	opts = append([]graceful.Option{graceful.WithSignals(), graceful.WithOutput(&t.out)}, opts...)
	return graceful.Run(ctx, func(s *ctxshutdown.Swansong) error {
		process(t.T, s).Watch(t.path.watch)
		return f(s)
	}, opts...)
}

var errEnough = errors.New("enough")

// output is a buffer that is safe to use concurrently.
type output struct {
	mu sync.Mutex
	b  []byte
}

func (b *output) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.b = append(b.b, p...)
	return len(p), nil
}

func (b *output) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.b)
}

// hold holds a guard of a child until ctx ends, and for d more.
func hold(s *ctxshutdown.Swansong, name string, ctx context.Context, d time.Duration) {
	c, _ := ctxshutdown.WithCancel(s, ctxshutdown.WithName(name))
	c.Go(func(context.Context) {
		<-ctx.Done()
		time.Sleep(d)
	})
}

// untilStopped is what an f does that has nothing to do itself.
func untilStopped(s *ctxshutdown.Swansong) error {
	<-s.Done()
	return nil
}
