package ctxshutdown_test

import (
	"context"
	"errors"
	"testing"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/ctxkey"
	"github.com/swansong-go/swansong/internal/testkit"
)

// The tests of this file make a second call at one point in the middle of a first call: the first
// call calls a method of a user's context, or the hook of a test, which then makes the second call.

// A meetingContext is a user's context. A test can set a function for each of the methods Err, Done
// and Value: the next call of the method first calls that function, and later calls do not.
type meetingContext struct {
	context.Context // answers the calls of Value
	done            chan struct{}
	err             error

	onErr, onDone, onValue func()

	live int // the number of functions that AfterFunc has registered
}

// below creates a chain of contexts: a root scope, a meetingContext that derives from it, and a
// child scope of that. It returns the last two.
func below() (*meetingContext, *ctxshutdown.Swansong) {
	parent := &meetingContext{Context: ctxshutdown.New(context.Background()), done: make(chan struct{})}
	return parent, child(parent)
}

func (c *meetingContext) Done() <-chan struct{} { once(&c.onDone); return c.done }

func (c *meetingContext) Err() error { once(&c.onErr); return c.err }

func (c *meetingContext) Value(key any) any { once(&c.onValue); return c.Context.Value(key) }

// AfterFunc lets package context register children here instead of starting goroutines.
func (c *meetingContext) AfterFunc(f func()) (stop func() bool) {
	c.live++
	return func() bool { c.live--; return true }
}

// once calls *f, if it is not nil, and sets it to nil first.
func once(f *func()) {
	if call := *f; call != nil {
		*f = nil
		call()
	}
}

// The first Done creates the standard context of a scope. If it does so after a concurrent Shutdown
// has looked for that context and found none, the Shutdown must still cancel it.
func TestShutdown_CancelsContextCreatedConcurrently(t *testing.T) {
	parent, s := below()
	var done <-chan struct{}
	parent.onErr = func() { done = s.Done() }
	s.Shutdown()
	if done == nil {
		t.Fatal("Shutdown has not asked the parent")
	}
	testkit.Equal(t, "Done is closed", testkit.IsClosed(done), true)
	testkit.Equal(t, "the error is context.Canceled", s.Err() == context.Canceled, true)
}

// Two concurrent first calls of Done create a standard context each. The context that is not used
// does not stay registered with the parent.
func TestDone_ConcurrentFirstCallsRegisterOneContextWithParent(t *testing.T) {
	parent, s := below()
	var inner <-chan struct{}
	parent.onDone = func() { inner = s.Done() }
	outer := s.Done()
	if inner == nil {
		t.Fatal("Done has not asked the parent")
	}
	testkit.Equal(t, "both calls return the same channel", inner == outer, true)
	testkit.Equal(t, "registered with the parent", parent.live, 1)
	s.Shutdown()
	testkit.Equal(t, "registered with the parent after the stop", parent.live, 0)
}

// If the last guard is released while Wait collects the guards for its error, Wait returns nil
// instead of an error that lists no guard.
func TestWait_ReturnsNilIfLastGuardIsReleasedWhileErrorIsMade(t *testing.T) {
	s := ctxshutdown.New(t.Context())
	g := s.Guard()
	ended := &meetingContext{Context: context.Background(), done: make(chan struct{}), err: context.Canceled}
	close(ended.done)
	ended.onValue = func() { s.Shutdown(); g.Release() }
	if err := s.Completion().Wait(ended); err != nil {
		var drain *ctxshutdown.DrainError
		t.Errorf("a DrainError: %v; %v", errors.As(err, &drain), err)
	}
}

// If a Wait of the group returns between the two checks of Go, Go returns false and releases the
// guard that it has acquired.
func TestGroup_GoRefusedDuringWaitReleasesItsGuard(t *testing.T) {
	var atAcquire func()
	hook := ctxkey.GuardHook(func(e ctxkey.GuardEvent) {
		if e == ctxkey.AfterAcquire {
			once(&atAcquire)
		}
	})
	s := ctxshutdown.New(context.WithValue(t.Context(), ctxkey.Hook{}, hook))
	group := ctxshutdown.NewGroup(s)
	atAcquire = func() { group.Wait() }
	testkit.Equal(t, "started", group.Go(func(context.Context) error { return nil }), false)
	testkit.Equal(t, "guards", s.GuardReport().Count(), 0)
}
