package graceful_test

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"go.uber.org/goleak"
)

// If a test has started the test binary as a subprocess, TestMain runs the role that the
// environment variable roleVar names (see play) instead of the tests.
func TestMain(m *testing.M) {
	for _, v := range []string{"CTXSHUTDOWN_TRACE", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "TERMINATION_GRACE_PERIOD_SECONDS"} {
		if os.Getenv(roleVar) == "" {
			os.Unsetenv(v)
		}
	}
	if role := os.Getenv(roleVar); role != "" {
		os.Exit(play(role))
	}
	// Tests may run under nohup, or in the background of a script, where SIGHUP and SIGINT are
	// ignored. Processes that the tests start would ignore them, too, unless this process handles
	// the signals.
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGHUP} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	goleak.VerifyTestMain(m)
}

func process(t *testing.T, ctx context.Context) *graceful.Process {
	t.Helper()
	p, ok := graceful.FromContext(ctx)
	if !ok {
		t.Fatal("there is no Process in the scope of Run")
	}
	return p
}

// A step is a phase and the time at which it began, counted from the start of the run.
type step struct {
	Phase graceful.Phase
	At    time.Duration
}

// A path is the sequence of phases of a run.
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
	if n := len(p.steps); n == 0 || p.steps[n-1].Phase != st.Phase {
		p.steps = append(p.steps, step{st.Phase, st.Since.Sub(p.began)})
	}
}

// A testRun is a call of Run in a synctest bubble. Its context ends after one second, which begins
// the stop.
type testRun struct {
	*testing.T
	path path
	out  output
}

// bubble runs f in a synctest bubble. A test in a bubble cannot send signals. Tests that send
// signals are in signal_test.go, and use no bubble.
func bubble(t *testing.T, f func(t *testRun)) {
	synctest.Test(t, func(t *testing.T) { f(&testRun{T: t}) })
}

// run calls Run with f and returns what happened.
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

// An output is a buffer that several goroutines may use at the same time.
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

// hold holds a guard of a child scope until ctx ends, and then for the time d.
func hold(s *ctxshutdown.Swansong, name string, ctx context.Context, d time.Duration) {
	c, _ := ctxshutdown.WithCancel(s, ctxshutdown.WithName(name))
	c.Go(func(context.Context) {
		<-ctx.Done()
		time.Sleep(d)
	})
}

// untilStopped is a function to pass to Run. It only waits for the stop.
func untilStopped(s *ctxshutdown.Swansong) error {
	<-s.Done()
	return nil
}
