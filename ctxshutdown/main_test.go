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
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	os.Unsetenv("CTXSHUTDOWN_TRACE") // the tests that want it set it
	goleak.VerifyTestMain(m)
}

// A claim is a test whose failures begin with what they contradict: a section of the specification, or a semantic of
// the design.
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
		c.Errorf("%s: not so: %s", c.source, what)
	}
}

// sees checks all that a scope shows of itself without being asked to be waited on.
func (c claim) sees(s *ctxshutdown.Swansong, state ctxshutdown.State, guards int) {
	c.Helper()
	type view struct {
		State   ctxshutdown.State
		Guards  int
		Stopped bool
	}
	c.equal("observable state", view{s.State(), s.GuardCount(), s.Err() != nil}, view{state, guards, state != ctxshutdown.Running})
}

// tooLong is for broken code.
const tooLong = 10 * time.Second

// drains waits for a completion that must come.
func (c claim) drains(done *ctxshutdown.Completion) {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	defer cancel()
	if err := done.Wait(ctx); err != nil {
		c.Fatalf("%s: the completion does not resolve: %v", c.source, err)
	}
}

// ends waits for a channel that must be closed.
func (c claim) ends(what string, done <-chan struct{}) {
	c.Helper()
	select {
	case <-done:
	case <-time.After(tooLong):
		c.Fatalf("%s: does not end: %s", c.source, what)
	}
}

func closed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func resolved(c *ctxshutdown.Completion) bool { return closed(c.Done()) }

// A rule is one sentence of the specification.
type rule struct {
	name  string
	check func(c claim, s *ctxshutdown.Swansong)
}

// testRules checks each rule on a fresh running scope of each kind, since "the returned handle satisfies the entire
// single-Swansong spec in its own right" (5.1).
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
	{"child that is waited on", func(ctx context.Context) *ctxshutdown.Swansong {
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

// child is WithCancel for tests that stop the child by its own Shutdown, its parent's, or not at all.
func child(parent context.Context, opts ...ctxshutdown.Option) *ctxshutdown.Swansong {
	s, _ := ctxshutdown.WithCancel(parent, opts...)
	return s
}

// collected reports whether the garbage collector takes what p points to.
func collected[T any](p weak.Pointer[T]) bool {
	for range 5 {
		runtime.GC()
		if p.Value() == nil {
			return true
		}
	}
	return false
}
