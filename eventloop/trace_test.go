package eventloop_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/eventloop"
	"github.com/swansong-go/swansong/internal/testkit"
)

// lineAbove returns the file and the number of the line above the one that calls it.
func lineAbove() string {
	_, file, line, _ := runtime.Caller(1)
	return fmt.Sprintf("%s:%d", filepath.Base(file), line-1)
}

// A stuckFunc is a user's function that blocks.
type stuckFunc struct{ entered, leave chan struct{} }

func (s stuckFunc) wait() {
	close(s.entered)
	<-s.leave
}

func (s stuckFunc) work(context.Context) (int, error) {
	s.wait()
	return 0, nil
}

// Under trace, the report of a scope names the line where the user has posted, submitted or
// offloaded a function that blocks, and the DrainError of a Wait has the function's stack.
func TestTrace_NamesUserLineAndStackOfBlockedFunction(t *testing.T) {
	done := func(int, error) {}
	for name, test := range map[string]struct {
		start func(l *eventloop.Loop, p *eventloop.Pool, s stuckFunc) (site string)
		paths []string // paths of the scopes with a guard that was acquired on the line site
	}{
		"Post": {func(l *eventloop.Loop, p *eventloop.Pool, s stuckFunc) string {
			l.Post(s.wait)
			return lineAbove()
		}, []string{"app/ledger"}},
		"PostWait": {func(l *eventloop.Loop, p *eventloop.Pool, s stuckFunc) string {
			l.PostWait(context.Background(), s.wait)
			return lineAbove()
		}, []string{"app/ledger"}},
		"Post of a handle": {func(l *eventloop.Loop, p *eventloop.Pool, s stuckFunc) string {
			h, _ := l.Handle()
			h.Post(s.wait)
			site := lineAbove()
			h.Release()
			return site
		}, []string{"app/ledger"}},
		"After": {func(l *eventloop.Loop, p *eventloop.Pool, s stuckFunc) string {
			l.After(0, s.wait)
			return lineAbove()
		}, []string{"app/ledger"}},
		"Submit": {func(l *eventloop.Loop, p *eventloop.Pool, s stuckFunc) string {
			p.Submit(s.wait)
			return lineAbove()
		}, []string{"app/pool"}},
		"SubmitWait for room": {func(l *eventloop.Loop, p *eventloop.Pool, s stuckFunc) string {
			begun := make(chan struct{})
			p.Submit(func() { <-begun })
			p.Submit(func() {})
			// The channel begun is closed after a millisecond, so that SubmitWait probably has to
			// wait for room before. Then a goroutine of the pool acquires the guard for the job of
			// SubmitWait.
			time.AfterFunc(time.Millisecond, func() { close(begun) })
			p.SubmitWait(context.Background(), s.wait)
			return lineAbove()
		}, []string{"app/pool"}},
		"work of Offload": {func(l *eventloop.Loop, p *eventloop.Pool, s stuckFunc) string {
			eventloop.Offload(l, p, s.work, done)
			return lineAbove()
		}, []string{"app/ledger/offloads", "app/pool"}},
		"done of Offload": {func(l *eventloop.Loop, p *eventloop.Pool, s stuckFunc) string {
			eventloop.Offload(l, p, func(context.Context) (int, error) { return 0, nil }, func(int, error) { s.wait() })
			return lineAbove()
		}, []string{"app/ledger"}},
		"done of Async": {func(l *eventloop.Loop, p *eventloop.Pool, s stuckFunc) string {
			eventloop.Async(l, time.Hour, func(_ context.Context, complete func(int, error)) { complete(0, nil) }, func(int, error) { s.wait() })
			return lineAbove()
		}, []string{"app/ledger"}},
	} {
		t.Run(name, func(t *testing.T) {
			app := ctxshutdown.New(context.Background(), ctxshutdown.WithName("app"), ctxshutdown.WithTrace())
			l := startedIn(t, app, eventloop.WithName("ledger"))
			p := eventloop.NewPool(app, 1, eventloop.WithQueueLimit(2))
			s := stuckFunc{make(chan struct{}), make(chan struct{})}
			site := test.start(l, p, s)
			receive(t, "the function to begin", s.entered)
			// The guard of a function is released shortly after the function has returned.
			var got []string
			for deadline := time.Now().Add(tooLong); time.Now().Before(deadline); runtime.Gosched() {
				got = nil
				for _, e := range app.GuardReport().Entries() {
					// leave out the guard of the loop itself, which the helper startedIn has
					// created
					if !strings.HasPrefix(e.Site, "main_test.go:") {
						got = append(got, fmt.Sprintf("%s ×%d at %s", e.Path, e.Count, e.Site))
					}
				}
				if len(got) == len(test.paths) {
					break
				}
			}
			slices.Sort(got)
			var want []string
			for _, path := range test.paths {
				want = append(want, fmt.Sprintf("%s ×1 at %s", path, site))
			}
			testkit.Equal(t, "guards", got, want)
			_, oldest, _ := strings.Cut(app.GuardReport().Summary(), " s: ")
			testkit.Equal(t, "line of the oldest work in the summary", oldest, site)

			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			var drain *ctxshutdown.DrainError
			if err := app.Shutdown().Wait(ctx); !errors.As(err, &drain) {
				t.Fatalf("Wait returned %v, want a DrainError", err)
			}
			isTrue(t, "the stack of the function is listed once", strings.Count(drain.Stacks, "eventloop_test.stuckFunc.wait\n") == 1)
			if t.Failed() {
				t.Log(drain.Stacks)
			}
			close(s.leave)
			awaitDone(t, app.Shutdown())
		})
	}
}

// A summary usually names the line that acquired the oldest guard. The calls of New and Run acquire
// the oldest guards here. While Run runs the loop, the summary nevertheless names the line that has
// posted the running callback.
func TestTrace_SummaryNamesLineThatPostedRunningCallback(t *testing.T) {
	l := eventloop.New(ctxshutdown.New(context.Background(), ctxshutdown.WithTrace()))
	testkit.Equal(t, "error of Run", l.Run(context.Background(), func(context.Context) error {
		s := stuckFunc{make(chan struct{}), make(chan struct{})}
		l.Post(s.wait)
		site := lineAbove()
		receive(t, "the function to begin", s.entered)
		_, oldest, _ := strings.Cut(l.Scope().GuardReport().Summary(), " s: ")
		close(s.leave)
		testkit.Equal(t, "line of the oldest work", oldest, site)
		return nil
	}), nil)
}

// A summary names the line of a guard that the program has acquired on the scope of a loop, even
// while the loop has nothing to run.
func TestTrace_SummaryNamesLineOfUsersGuardIfLoopIsIdle(t *testing.T) {
	l := eventloop.New(ctxshutdown.New(context.Background(), ctxshutdown.WithTrace()))
	g := l.Scope().Guard()
	site := lineAbove()
	work, oldest, _ := strings.Cut(l.Scope().GuardReport().Summary(), " s: ") // the age differs from run to run
	g.Release()
	l.Stop()
	if !strings.HasPrefix(work, "loop ×1, oldest ") || oldest != site {
		t.Errorf("the summary says %q, and that the oldest is %q; want loop ×1 and %q", work, oldest, site)
	}
}

// In a report, the line of a handle is the line that has called the method Handle.
func TestTrace_NamesLineThatCreatedHandle(t *testing.T) {
	app := ctxshutdown.New(context.Background(), ctxshutdown.WithName("app"), ctxshutdown.WithTrace())
	l := startedIn(t, app, eventloop.WithName("ledger"))
	h, _ := l.Handle()
	site := lineAbove()
	defer h.Release()
	got := ""
	for _, e := range app.GuardReport().Entries() {
		if e.Path == "app/ledger/handles" {
			got += e.Site
		}
	}
	testkit.Equal(t, "site of the handle", got, site)
}

// The goroutine that calls Run has the label of the loop while the loop runs, and gets back the
// labels of Run's context.
func TestTrace_RunLabelsItsGoroutineUntilItReturns(t *testing.T) {
	app := ctxshutdown.New(context.Background(), ctxshutdown.WithName("app"), ctxshutdown.WithTrace())
	ctx := pprof.WithLabels(context.Background(), pprof.Labels("request", "r1"))
	l := eventloop.New(app, eventloop.WithName("ledger"))
	during := ""
	err := l.Run(ctx, func(context.Context) error {
		done := make(chan struct{})
		l.Post(func() { during = ownLabels(); close(done) })
		<-done
		return nil
	})
	after := ownLabels()
	pprof.SetGoroutineLabels(context.Background())
	testkit.Equal(t, "error of Run", err, nil)
	testkit.Equal(t, "labels during and after Run", []string{during, after}, []string{`{"swansong":"app/ledger"}`, `{"request":"r1"}`})
}

// ownLabels returns the pprof labels of the calling goroutine.
func ownLabels() string {
	var b strings.Builder
	pprof.Lookup("goroutine").WriteTo(&b, 1)
	for group := range strings.SplitSeq(b.String(), "\n\n") {
		if strings.Contains(group, "eventloop_test.ownLabels") {
			_, labels, _ := strings.Cut(group, "\n# labels: ")
			labels, _, _ = strings.Cut(labels, "\n")
			return labels
		}
	}
	return ""
}

// The hook of WithSlowCallback gets the name of the posted function even if the loop is traced.
func TestTrace_SlowCallbackNamesUserFunction(t *testing.T) {
	slow := make(chan string, 2)
	app := ctxshutdown.New(context.Background(), ctxshutdown.WithTrace())
	l := startedIn(t, app, eventloop.WithSlowCallback(1, func(s eventloop.SlowCallback) { slow <- s.Func }))
	l.Post(stuckFunc{make(chan struct{}), closed()}.wait)
	if name := receive(t, "the report", slow); !strings.Contains(name, "eventloop_test.stuckFunc.wait") {
		t.Errorf("the slow function is called %q", name)
	}
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
