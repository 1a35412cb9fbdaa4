package ctxshutdown_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/testkit"
)

// Work returns the hard context of a scope. These subtests check in which states of the scope
// that context is alive, and when it is cancelled: see docs/internals/core.md#semantic-5.
func TestWork_EndsAtCompletionOrForce(t *testing.T) {
	testRules(t, "docs/internals/core.md#semantic-5", []rule{
		{"Work has the values of its scope and outlives the stop while a guard is held", func(c claim, s *ctxshutdown.Swansong) {
			s = child(context.WithValue(s, key("k"), "v"))
			w := s.Work()
			g := s.Guard()
			s.Shutdown()
			c.equal("value", w.Value(key("k")), any("v"))
			scope, ok := ctxshutdown.FromContext(w)
			c.isTrue("FromContext of Work returns the scope", ok && scope == s)
			c.isTrue("Work has not ended during the drain", w.Err() == nil && !testkit.IsClosed(w.Done()) && context.Cause(w) == nil)
			c.isTrue("a Work asked for during the drain has not ended", s.Work().Err() == nil)
			g.Release()
			c.workEnded(w, ctxshutdown.ErrShutdown)
			c.workEnded(s.Work(), ctxshutdown.ErrShutdown)
		}},
		{"Work of a context has that context's values and its scope's end", func(c claim, s *ctxshutdown.Swansong) {
			ctx, cancel := context.WithTimeout(context.WithValue(s, key("k"), "v"), time.Hour)
			w := ctxshutdown.Work(ctx)
			cancel()
			_, deadline := w.Deadline()
			c.equal("value", w.Value(key("k")), any("v"))
			c.isTrue("Work has neither the end nor the deadline of the context", w.Err() == nil && !deadline)
			c.isTrue("Work of a context without a scope is that context", ctxshutdown.Work(context.Background()) == context.Background())
			s.Shutdown()
			c.workEnded(w, ctxshutdown.ErrShutdown)
		}},
		{"Force ends Work of all descendants, however they were created", func(c claim, s *ctxshutdown.Swansong) {
			below := map[string]*ctxshutdown.Swansong{
				"s": s, "a child": child(s), "a grandchild": child(context.WithValue(child(s), key("k"), 1)),
				"a child of Work": child(s.Work()), "a child of WithoutCancel": child(context.WithoutCancel(s)),
				"a grandchild below one": child(child(context.WithoutCancel(s))),
			}
			works := map[string]context.Context{}
			for name, k := range below {
				defer k.Guard().Release()
				works[name] = k.Work()
			}
			s.Shutdown()
			for name, w := range works {
				c.isTrue("not ended during the drain: "+name, w.Err() == nil)
			}
			s.Force(errCause)
			for name, w := range works {
				c.isTrue("ended when Force returns: "+name, w.Err() == context.Canceled && context.Cause(w) == errCause)
				c.isTrue("ended: "+name, below[name].Work().Err() != nil)
			}
		}},
		{"Work called first after Force has ended from the start", func(c claim, s *ctxshutdown.Swansong) {
			before := child(context.WithoutCancel(s))
			defer s.Guard().Release()
			s.Force(errCause)
			for _, k := range []*ctxshutdown.Swansong{s, before, child(s), child(child(s)), child(context.WithoutCancel(s))} {
				defer k.Guard().Release()
				w := k.Work()
				c.isTrue("Work has ended with the cause of Force", w.Err() != nil && context.Cause(w) == errCause)
			}
		}},
		{"Force on a running idle scope ends both contexts with its cause", func(c claim, s *ctxshutdown.Swansong) {
			k := child(s)
			soft, hard, low := s.Done(), s.Work(), k.Work()
			done := s.Force(errCause)
			c.isTrue("the completion is resolved and Done is closed", isResolved(done) && testkit.IsClosed(soft))
			c.isTrue("cause of the soft context", context.Cause(s) == errCause && context.Cause(k) == errCause)
			c.isTrue("cause of the hard context", context.Cause(hard) == errCause && context.Cause(low) == errCause)
		}},
		{"Force on a running scope with guards ends both contexts and waits for the guards", func(c claim, s *ctxshutdown.Swansong) {
			g, hard := s.Guard(), s.Work()
			done := s.Force(nil)
			c.isTrue("both contexts have ended with ErrForced", context.Cause(s) == ctxshutdown.ErrForced && context.Cause(hard) == ctxshutdown.ErrForced)
			c.checkState(s, ctxshutdown.ShuttingDown, 1)
			c.isTrue("the guard delays completion", !isResolved(done))
			g.Release()
			c.awaitCompletion(done)
		}},
		{"Force on a stopped scope does not change its cause, and the first Force wins", func(c claim, s *ctxshutdown.Swansong) {
			g, hard := s.Guard(), s.Work()
			s.Shutdown()
			s.Force(errCause)
			s.Force(errors.New("second"))
			g.Release()
			c.isTrue("cause of the soft context", context.Cause(s) == ctxshutdown.ErrShutdown)
			c.isTrue("cause of the hard context", context.Cause(hard) == errCause && context.Cause(s.Work()) == errCause)
		}},
		{"Work that has ended stays ended when a guard is acquired afterwards", func(c claim, s *ctxshutdown.Swansong) {
			w := s.Work()
			s.Shutdown()
			c.workEnded(w, ctxshutdown.ErrShutdown)
			defer s.Guard().Release()
			c.checkState(s, ctxshutdown.ShuttingDown, 1)
			c.isTrue("Work is still ended", w.Err() != nil && s.Work().Err() != nil)
			_, ok := ctxshutdown.Acquire(w)
			c.isTrue("Acquire with the ended Work refuses", !ok)
			s.Force(errCause)
			c.isTrue("Work has the same cause", context.Cause(w) == ctxshutdown.ErrShutdown)
		}},
		{"Work called first after completion has ended from the start, even while a new guard is held", func(c claim, s *ctxshutdown.Swansong) {
			s.Shutdown()
			defer s.Guard().Release()
			c.checkState(s, ctxshutdown.ShuttingDown, 1)
			c.isTrue("the cause of Work is ErrShutdown", context.Cause(s.Work()) == ctxshutdown.ErrShutdown)
		}},
		{"Work called first after the last release has ended from the start", func(c claim, s *ctxshutdown.Swansong) {
			g := s.Guard()
			s.Shutdown()
			g.Release()
			defer s.Guard().Release()
			c.workEnded(s.Work(), ctxshutdown.ErrShutdown)
		}},
		{"Work of an unused child of a complete parent has ended from the start, even while a new guard is held", func(c claim, s *ctxshutdown.Swansong) {
			k := child(child(s))
			s.Shutdown()
			defer k.Guard().Release()
			c.checkState(s, ctxshutdown.ShuttingDown, 1)
			c.isTrue("the cause of Work is ErrShutdown", context.Cause(k.Work()) == ctxshutdown.ErrShutdown)
		}},
		{"Work of an unused child has not ended while the parent drains", func(c claim, s *ctxshutdown.Swansong) {
			k, g := child(s), s.Guard()
			s.Shutdown()
			late := k.Guard()
			w := k.Work()
			c.isTrue("the Work has not ended", w.Err() == nil)
			late.Release()
			c.workEnded(w, ctxshutdown.ErrShutdown)
			g.Release()
		}},
		{"Work of a child that holds a guard has not ended if the stop of a complete scope above does not reach it", func(c claim, s *ctxshutdown.Swansong) {
			ctx, cancel := context.WithCancel(context.WithoutCancel(s))
			defer cancel()
			k := child(ctx)
			s.Shutdown()
			late := k.Guard()
			k.Shutdown()
			w := k.Work()
			c.isTrue("the Work has not ended", w.Err() == nil)
			late.Release()
			c.workEnded(w, ctxshutdown.ErrShutdown)
		}},
		{"Work of a grandchild that holds a guard has not ended if the stop of a complete scope above does not reach it", func(c claim, s *ctxshutdown.Swansong) {
			ctx, cancel := context.WithCancel(context.WithoutCancel(s))
			defer cancel()
			middle := child(ctx)
			k := child(middle)
			s.Shutdown()
			late := k.Guard()
			middle.Shutdown() // both s and middle have the cause ErrShutdown
			w := k.Work()
			c.isTrue("the Work has not ended", w.Err() == nil)
			late.Release()
			c.workEnded(w, ctxshutdown.ErrShutdown)
		}},
		{"a completed child ends its own Work and not that of its parent", func(c claim, s *ctxshutdown.Swansong) {
			k := child(s)
			above, w := s.Work(), k.Work()
			k.Shutdown()
			c.workEnded(w, ctxshutdown.ErrShutdown)
			c.isTrue("the Work of the parent has not ended", above.Err() == nil)
		}},
		{"the guards of a child of WithoutCancel count, no stop reaches it, and only Force ends its Work", func(c claim, s *ctxshutdown.Swansong) {
			k := child(context.WithoutCancel(s))
			w, g := k.Work(), k.Guard()
			idle := child(context.WithoutCancel(s)).Work()
			done := s.Shutdown()
			c.checkState(s, ctxshutdown.ShuttingDown, 1)
			c.checkState(k, ctxshutdown.Running, 1)
			g.Release()
			c.awaitCompletion(done)
			c.isTrue("the completion of the parent does not end the Work", w.Err() == nil && idle.Err() == nil)
			s.Force(errCause)
			c.isTrue("Force ends the Work", context.Cause(w) == errCause && context.Cause(idle) == errCause)
			c.checkState(k, ctxshutdown.Running, 0)
			k.Shutdown()
		}},
		{"BaseContext without a guard per request ends at the stop", func(c claim, s *ctxshutdown.Swansong) {
			request, cancel := context.WithCancel(s.BaseContext(nil))
			defer cancel()
			s.Shutdown()
			c.workEnded(request, ctxshutdown.ErrShutdown)
		}},
		{"BaseContext with a guard per request outlives the stop", func(c claim, s *ctxshutdown.Swansong) {
			request, cancel := context.WithCancel(s.BaseContext(nil))
			defer cancel()
			g, _ := ctxshutdown.Acquire(request)
			s.Shutdown()
			c.isTrue("the context of the request has not ended", request.Err() == nil)
			g.Release()
			c.workEnded(request, ctxshutdown.ErrShutdown)
		}},
	})
	t.Run("with a deadline above", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := claim{t, "docs/internals/core.md#semantic-5"}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			root := ctxshutdown.New(ctx)
			idle, busy := child(root), child(context.WithValue(child(root), key("k"), 1))
			g := busy.Guard()
			works := []context.Context{root.Work(), idle.Work(), busy.Work()}
			_, soft := root.Deadline()
			c.isTrue("the scope has the deadline", soft)
			for _, w := range works {
				_, hard := w.Deadline()
				c.isTrue("Work has no deadline", !hard)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			// Work must end although the test calls neither State nor Completion from here on.
			c.isTrue("the Work of an idle scope ends at the deadline", works[1].Err() != nil)
			c.isTrue("the Work of a scope with a guard below does not end at the deadline", works[0].Err() == nil && works[2].Err() == nil)
			g.Release()
			synctest.Wait()
			for _, w := range works {
				c.isTrue("Work ends with the last guard", w.Err() != nil)
				c.isTrue("the cause of Work is ErrShutdown", context.Cause(w) == ctxshutdown.ErrShutdown)
			}
			c.isTrue("the scope ended by the deadline", root.Err() == context.DeadlineExceeded)
		})
	})
	t.Run("Work called first during Force or the last release ends", func(t *testing.T) {
		c := claim{t, "docs/internals/core.md#semantic-5"}
		for i := range 4_000 {
			root := ctxshutdown.New(context.Background())
			k := child(root)
			g := k.Guard()
			asked := make(chan context.Context)
			go func() { asked <- k.Work() }()
			if i%2 == 0 {
				root.Force(errCause)
				c.workEnded(<-asked, errCause)
				g.Release()
			} else {
				root.Shutdown()
				g.Release()
				c.workEnded(<-asked, ctxshutdown.ErrShutdown)
			}
		}
	})
}

// workEnded waits until w has ended and checks its error and cause. It must wait, because if a
// context above the scope has ended, a goroutine of package context ends Work a moment later.
func (c claim) workEnded(w context.Context, cause error) {
	c.Helper()
	c.awaitClosed("Work", w.Done())
	c.isTrue("Err is Canceled", w.Err() == context.Canceled)
	c.isTrue("Work has the right cause", context.Cause(w) == cause)
}

// hookedContext calls onUnregister when a scope that derives from it unregisters from it. A scope
// unregisters in the middle of its method Force.
type hookedContext struct {
	context.Context // implements the method Value; the other methods are below
	done            chan struct{}
	onUnregister    func()
}

func (h hookedContext) Done() <-chan struct{} { return h.done }
func (h hookedContext) Err() error            { return nil }

// AfterFunc is called by package context when a context is derived.
func (h hookedContext) AfterFunc(func()) (stop func() bool) {
	return func() bool { h.onUnregister(); return true }
}

// A child and its parent are forced concurrently. The Force of the child has stored its cause, but
// has not yet cancelled any Work when the Force of the parent runs. The Work of the child and of
// the scopes below the child must have the cause that was stored first.
func TestForce_KeepsFirstCause(t *testing.T) {
	c := claim{t, "docs/internals/core.md#semantic-5"}
	root := ctxshutdown.New(t.Context())
	other := errors.New("the second")
	k := child(hookedContext{root, make(chan struct{}), func() { root.Force(other) }})
	defer k.Guard().Release()
	w, below := k.Work(), child(k).Work()
	k.Done()
	k.Force(errCause)
	c.isTrue("the Work of the root has the cause of the second Force", context.Cause(root.Work()) == other)
	c.isTrue("the Work of the child has the cause of the first Force", context.Cause(w) == errCause)
	c.isTrue("the Work of a grandchild has the cause of the first Force", context.Cause(below) == errCause)
	c.isTrue("the Work of a scope created later has the cause of the first Force", context.Cause(child(k).Work()) == errCause)
}
