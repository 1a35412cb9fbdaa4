package ctxshutdown_test

import (
	"context"
	"os"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/testkit"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	os.Unsetenv("CTXSHUTDOWN_TRACE") // the user may have set it; tests of the variable set it themselves
	goleak.VerifyTestMain(m)
}

// A claim is a test of a documented rule. The text of each failure begins with the section that
// states the rule, such as "docs/internals/core.md#semantic-1".
type claim struct {
	*testing.T
	source string
}

func (c claim) equal(what string, got, want any) {
	c.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		c.Errorf("%s: %s (-want +got):\n%s", c.source, what, diff)
	}
}

func (c claim) isTrue(what string, ok bool) {
	c.Helper()
	if !ok {
		c.Errorf("%s: want: %s", c.source, what)
	}
}

// checkState checks the state of s, its number of guards, and whether Err is set.
func (c claim) checkState(s *ctxshutdown.Swansong, state ctxshutdown.State, guards int) {
	c.Helper()
	type view struct {
		State   ctxshutdown.State
		Guards  int
		Stopped bool
	}
	c.equal("observable state", view{s.State(), s.GuardCount(), s.Err() != nil}, view{state, guards, state != ctxshutdown.Running})
}

// tooLong is how long a test waits for something before it fails.
const tooLong = 10 * time.Second

// awaitCompletion waits for a completion and fails the test if it does not resolve.
func (c claim) awaitCompletion(done *ctxshutdown.Completion) {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	defer cancel()
	if err := done.Wait(ctx); err != nil {
		c.Fatalf("%s: the completion does not resolve: %v", c.source, err)
	}
}

// awaitClosed waits for a channel and fails the test if it is not closed.
func (c claim) awaitClosed(what string, done <-chan struct{}) {
	c.Helper()
	select {
	case <-done:
	case <-time.After(tooLong):
		c.Fatalf("%s: not closed in time: %s", c.source, what)
	}
}

func isResolved(c *ctxshutdown.Completion) bool { return testkit.IsClosed(c.Done()) }

// A rule is one sentence of the contract.
type rule struct {
	name  string
	check func(c claim, s *ctxshutdown.Swansong)
}

// testRules checks each rule on a new running scope of each kind, because a child satisfies the
// whole contract of a scope: see docs/internals/core.md#children.
func testRules(t *testing.T, source string, rules []rule) {
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			for _, k := range kinds {
				t.Run(k.name, func(t *testing.T) { r.check(claim{t, source}, k.make(t.Context())) })
			}
		})
	}
}

type key string

var kinds = []struct {
	name string
	make func(ctx context.Context) *ctxshutdown.Swansong
}{
	{"root", func(ctx context.Context) *ctxshutdown.Swansong { return ctxshutdown.New(ctx) }},
	{"child", func(ctx context.Context) *ctxshutdown.Swansong { return child(ctxshutdown.New(ctx)) }},
	{"child with a context of its own", func(ctx context.Context) *ctxshutdown.Swansong {
		s := child(ctxshutdown.New(ctx))
		s.Done()
		s.Completion()
		s.Work()
		return s
	}},
	{"grandchild through contexts", func(ctx context.Context) *ctxshutdown.Swansong {
		return child(context.WithValue(child(ctxshutdown.New(ctx)), key("k"), "v"))
	}},
	{"child of Work", func(ctx context.Context) *ctxshutdown.Swansong { return child(ctxshutdown.New(ctx).Work()) }},
	{"child of WithoutCancel", func(ctx context.Context) *ctxshutdown.Swansong {
		return child(context.WithoutCancel(ctxshutdown.New(ctx)))
	}},
}

// child creates a child scope and returns it without its cancel function. Tests that use it stop
// the scope by Shutdown, or through its parent, or not at all.
func child(parent context.Context, opts ...ctxshutdown.Option) *ctxshutdown.Swansong {
	s, _ := ctxshutdown.WithCancel(parent, opts...)
	return s
}

// isCollected runs the garbage collector and reports whether it frees what p points to.
func isCollected[T any](p weak.Pointer[T]) bool {
	for range 5 {
		runtime.GC()
		if p.Value() == nil {
			return true
		}
	}
	return false
}
