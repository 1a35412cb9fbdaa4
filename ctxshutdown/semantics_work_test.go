package ctxshutdown_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// Semantic 5 of core.md: the life of the hard tier.
func TestSemantic5_Work(t *testing.T) {
	testRules(t, "semantic 5", []rule{
		{"it has the values of its scope and outlives the stop while a guard is held", func(c claim, s *ctxshutdown.Swansong) {
			s = child(context.WithValue(s, key("k"), "v"))
			w := s.Work()
			g := s.Guard()
			s.Shutdown()
			c.equal("value", w.Value(key("k")), any("v"))
			scope, ok := ctxshutdown.FromContext(w)
			c.isTrue("its nearest scope is s", ok && scope == s)
			c.isTrue("alive during the drain", w.Err() == nil && !closed(w.Done()) && context.Cause(w) == nil)
			c.isTrue("as is one asked for now", s.Work().Err() == nil)
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
			c.isTrue("neither its end nor its deadline", w.Err() == nil && !deadline)
			c.isTrue("without a scope it is the context itself", ctxshutdown.Work(context.Background()) == context.Background())
			s.Shutdown()
			c.workEnded(w, ctxshutdown.ErrShutdown)
		}},
		{"Force ends it in the whole subtree, whoever asked when", func(c claim, s *ctxshutdown.Swansong) {
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
				c.isTrue("alive during the drain: "+name, w.Err() == nil)
			}
			s.Force(errCause)
			for name, w := range works {
				c.isTrue("ended when Force returns: "+name, w.Err() == context.Canceled && context.Cause(w) == errCause)
				c.isTrue("ended: "+name, below[name].Work().Err() != nil)
			}
		}},
		{"it is born ended under a forced scope", func(c claim, s *ctxshutdown.Swansong) {
			before := child(context.WithoutCancel(s))
			defer s.Guard().Release()
			s.Force(errCause)
			for _, k := range []*ctxshutdown.Swansong{s, before, child(s), child(child(s)), child(context.WithoutCancel(s))} {
				defer k.Guard().Release()
				w := k.Work()
				c.isTrue("born ended, with the cause of Force", w.Err() != nil && context.Cause(w) == errCause)
			}
		}},
		{"Force on a running idle scope gives both tiers its cause", func(c claim, s *ctxshutdown.Swansong) {
			k := child(s)
			soft, hard, low := s.Done(), s.Work(), k.Work()
			done := s.Force(errCause)
			c.isTrue("resolved at once", resolved(done) && closed(soft))
			c.isTrue("soft tier", context.Cause(s) == errCause && context.Cause(k) == errCause)
			c.isTrue("hard tier", context.Cause(hard) == errCause && context.Cause(low) == errCause)
		}},
		{"Force on a running scope with guards does too, and they are still waited for", func(c claim, s *ctxshutdown.Swansong) {
			g, hard := s.Guard(), s.Work()
			done := s.Force(nil)
			c.isTrue("both tiers", context.Cause(s) == ctxshutdown.ErrForced && context.Cause(hard) == ctxshutdown.ErrForced)
			c.sees(s, ctxshutdown.ShuttingDown, 1)
			c.isTrue("the guard delays completion", !resolved(done))
			g.Release()
			c.drains(done)
		}},
		{"Force on a stopped scope leaves its cause alone, and the first Force wins", func(c claim, s *ctxshutdown.Swansong) {
			g, hard := s.Guard(), s.Work()
			s.Shutdown()
			s.Force(errCause)
			s.Force(errors.New("second"))
			g.Release()
			c.isTrue("soft tier", context.Cause(s) == ctxshutdown.ErrShutdown)
			c.isTrue("hard tier", context.Cause(hard) == errCause && context.Cause(s.Work()) == errCause)
		}},
		{"ended, it stays so under a late guard", func(c claim, s *ctxshutdown.Swansong) {
			w := s.Work()
			s.Shutdown()
			c.workEnded(w, ctxshutdown.ErrShutdown)
			defer s.Guard().Release()
			c.sees(s, ctxshutdown.ShuttingDown, 1)
			c.isTrue("still ended", w.Err() != nil && s.Work().Err() != nil)
			_, ok := ctxshutdown.Acquire(w)
			c.isTrue("and admits nobody", !ok)
			s.Force(errCause)
			c.isTrue("with the same cause", context.Cause(w) == ctxshutdown.ErrShutdown)
		}},
		{"a completed child's ends, the parent's does not", func(c claim, s *ctxshutdown.Swansong) {
			k := child(s)
			above, w := s.Work(), k.Work()
			k.Shutdown()
			c.workEnded(w, ctxshutdown.ErrShutdown)
			c.isTrue("the parent runs", above.Err() == nil)
		}},
		{"a child of WithoutCancel counts, is not signalled, and only Force ends its Work", func(c claim, s *ctxshutdown.Swansong) {
			k := child(context.WithoutCancel(s))
			w, g := k.Work(), k.Guard()
			idle := child(context.WithoutCancel(s)).Work()
			done := s.Shutdown()
			c.sees(s, ctxshutdown.ShuttingDown, 1)
			c.sees(k, ctxshutdown.Running, 1)
			g.Release()
			c.drains(done)
			c.isTrue("the parent's completion does not end it", w.Err() == nil && idle.Err() == nil)
			s.Force(errCause)
			c.isTrue("Force does", context.Cause(w) == errCause && context.Cause(idle) == errCause)
			c.sees(k, ctxshutdown.Running, 0)
			k.Shutdown()
		}},
		{"the trap: BaseContext without a guard per request ends with the stop", func(c claim, s *ctxshutdown.Swansong) {
			request, cancel := context.WithCancel(s.BaseContext(nil))
			defer cancel()
			s.Shutdown()
			c.workEnded(request, ctxshutdown.ErrShutdown)
		}},
		{"BaseContext with a guard per request sees it through", func(c claim, s *ctxshutdown.Swansong) {
			request, cancel := context.WithCancel(s.BaseContext(nil))
			defer cancel()
			g, _ := ctxshutdown.Acquire(request)
			s.Shutdown()
			c.isTrue("alive", request.Err() == nil)
			g.Release()
			c.workEnded(request, ctxshutdown.ErrShutdown)
		}},
	})
	t.Run("with a deadline above", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := claim{t, "semantic 5"}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			root := ctxshutdown.New(ctx)
			idle, busy := child(root), child(context.WithValue(child(root), key("k"), 1))
			g := busy.Guard()
			works := []context.Context{root.Work(), idle.Work(), busy.Work()}
			_, soft := root.Deadline()
			c.isTrue("the soft tier has the deadline", soft)
			for _, w := range works {
				_, hard := w.Deadline()
				c.isTrue("Work has none", !hard)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			// From here on nobody looks at a State or a Completion: Work ends by itself.
			c.isTrue("of an idle scope it ends with the deadline", works[1].Err() != nil)
			c.isTrue("with a guard below it does not", works[0].Err() == nil && works[2].Err() == nil)
			g.Release()
			synctest.Wait()
			for _, w := range works {
				c.isTrue("with the last guard it ends", w.Err() != nil)
				c.isTrue("because its scope is complete", context.Cause(w) == ctxshutdown.ErrShutdown)
			}
			c.isTrue("whereas the soft tier timed out", root.Err() == context.DeadlineExceeded)
		})
	})
	t.Run("asked for while Force or the last release is under way", func(t *testing.T) {
		c := claim{t, "semantic 5"}
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

// workEnded waits: where the signal comes from above, the end of Work takes a goroutine of package context.
func (c claim) workEnded(w context.Context, cause error) {
	c.Helper()
	c.ends("Work", w.Done())
	c.isTrue("Err is Canceled", w.Err() == context.Canceled)
	c.isTrue("the cause is as it should be", context.Cause(w) == cause)
}

// A hookedContext calls a function when a scope that derives from it leaves, in the middle of that scope's Force.
type hookedContext struct {
	context.Context // for its values
	done            chan struct{}
	left            func()
}

func (h hookedContext) Done() <-chan struct{} { return h.done }
func (h hookedContext) Err() error            { return nil }

// AfterFunc is what package context looks for.
func (h hookedContext) AfterFunc(func()) (stop func() bool) {
	return func() bool { h.left(); return true }
}

// Two scopes, one above the other, are forced at once: the lower one's Force has been recorded, and has not come round to
// Work, when the upper one's runs. Whoever asks which Work, and when: the first Force has won.
func TestSemantic5_TheFirstForceWinsAlsoUnderWay(t *testing.T) {
	c := claim{t, "semantic 5"}
	root := ctxshutdown.New(t.Context())
	other := errors.New("the second")
	k := child(hookedContext{root, make(chan struct{}), func() { root.Force(other) }})
	defer k.Guard().Release()
	w, below := k.Work(), child(k).Work()
	k.Done()
	k.Force(errCause)
	c.isTrue("the root was forced by the other", context.Cause(root.Work()) == other)
	c.isTrue("of Work", context.Cause(w) == errCause)
	c.isTrue("of a child's", context.Cause(below) == errCause)
	c.isTrue("of one made later", context.Cause(child(k).Work()) == errCause)
}
