package ctxshutdown_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// The semantics of core.md beyond the specification: 1 to 4 in this file, 5 in semantics_work_test.go, 8 in
// semantics_wait_test.go.

var errCause = errors.New("the cause")

// onErr is a context that has a test act in the middle of what asks it for Err: f is told the how manieth call it is.
type onErr struct {
	context.Context
	calls *atomic.Int32
	f     func(call int32, ctx context.Context) error
}

func (ctx onErr) Err() error { return ctx.f(ctx.calls.Add(1), ctx.Context) }

func TestSemantic1_NoGuardIsEverMissed(t *testing.T) {
	testRules(t, "semantic 1", []rule{
		{"a guard acquired before Shutdown is counted at every ancestor", func(c claim, s *ctxshutdown.Swansong) {
			scopes := []*ctxshutdown.Swansong{s}
			for range 6 {
				scopes = append(scopes, child(context.WithValue(scopes[len(scopes)-1], key("k"), 1)))
			}
			g := scopes[len(scopes)-1].Guard()
			done := s.Shutdown()
			for _, s := range scopes {
				c.sees(s, ctxshutdown.ShuttingDown, 1)
			}
			g.Release()
			c.drains(done)
		}},
		{"a child's first guard, after the stop, is counted before it is returned", func(c claim, s *ctxshutdown.Swansong) {
			before, g := child(s), s.Guard()
			done := s.Shutdown()
			for _, k := range []*ctxshutdown.Swansong{before, child(s), child(child(before)), child(context.WithoutCancel(s))} {
				next := k.Guard() // nobody has looked at k so far
				g.Release()
				c.isTrue("the late guard is counted", !resolved(done) && s.State() == ctxshutdown.ShuttingDown)
				g = next
			}
			g.Release()
			c.drains(done)
		}},
	})
	t.Run("two stops at once: the second is not over before the walk of the first", func(t *testing.T) {
		c := claim{t, "semantic 1"}
		for range 50 {
			root := ctxshutdown.New(context.Background())
			middle := child(root)
			var guards []*ctxshutdown.Guard
			for range 1_000 { // so that the walk takes its time
				guards = append(guards, child(middle).Guard())
			}
			var racing sync.WaitGroup
			racing.Go(func() { middle.Shutdown() })
			for middle.Err() == nil { // the walk is about to begin
				runtime.Gosched()
			}
			if done := root.Shutdown(); resolved(done) || root.State() == ctxshutdown.Complete {
				t.Errorf("%s: complete while guards are held", c.source)
			}
			racing.Wait()
			for _, g := range guards {
				g.Release()
			}
			c.drains(root.Completion())
			c.drains(middle.Completion())
		}
	})
}

func TestSemantic2_Admission(t *testing.T) {
	testRules(t, "semantic 2", []rule{
		{"who is refused finds Err and Cause", func(c claim, s *ctxshutdown.Swansong) {
			for _, s := range []*ctxshutdown.Swansong{child(s), child(child(s)), s} {
				s.ShutdownCause(errCause)
				g, ok := s.TryGuard()
				c.isTrue("refused", g == nil && !ok)
				c.isTrue("Err and Cause are set", s.Err() == context.Canceled && context.Cause(s) == errCause)
				c.isTrue("Go is refused alike", !s.Go(func(context.Context) { c.Error("f runs") }))
			}
		}},
		{"a scope that has been seen stopped keeps its cause", func(c claim, s *ctxshutdown.Swansong) {
			unwired := child(s)
			s.ShutdownCause(errCause)
			_, ok := unwired.TryGuard()
			c.isTrue("refused", !ok)
			unwired.ShutdownCause(errors.New("too late"))
			c.isTrue("the cause is what stopped it", context.Cause(unwired) == errCause)
		}},
		{"an error seen is latched, also against a Shutdown on its way", func(c claim, s *ctxshutdown.Swansong) {
			var unwired *ctxshutdown.Swansong
			unwired = child(onErr{s, new(atomic.Int32), func(call int32, ctx context.Context) error {
				err := ctx.Err()
				if call == 1 { // Shutdown of the child has asked: its parent runs. It stops before the child does
					s.ShutdownCause(errCause)
					c.isTrue("the parent's error is seen", unwired.Err() == context.Canceled && context.Cause(unwired) == errCause)
				}
				return err
			}})
			unwired.Shutdown()
			c.isTrue("the cause seen stays", context.Cause(unwired) == errCause)
		}},
		{"TryGuard: stopped between counting and checking", func(c claim, s *ctxshutdown.Swansong) {
			var done *ctxshutdown.Completion
			_, ok := child(onErr{s, new(atomic.Int32), func(call int32, ctx context.Context) error {
				if call == 1 {
					done = s.Shutdown()
					c.isTrue("a try on its way is counted", !resolved(done))
				}
				return ctx.Err()
			}}).TryGuard()
			c.isTrue("refused", !ok && done != nil)
			c.isTrue("a refused try is a full release, and this was the last", done != nil && resolved(done))
			c.sees(s, ctxshutdown.Complete, 0)
		}},
		{"Acquire: stopped between counting and checking", func(c claim, s *ctxshutdown.Swansong) {
			var done *ctxshutdown.Completion
			_, ok := ctxshutdown.Acquire(onErr{s, new(atomic.Int32), func(call int32, ctx context.Context) error {
				if call == 2 { // the first is the check on entry
					done = s.Shutdown()
					c.isTrue("a try on its way is counted", !resolved(done))
				}
				return ctx.Err()
			}})
			c.isTrue("refused", !ok && done != nil)
			c.isTrue("a refused try is a full release, and this was the last", done != nil && resolved(done))
			c.sees(s, ctxshutdown.Complete, 0)
		}},
		{"by the context: Work admits during the drain, the scope does not", func(c claim, s *ctxshutdown.Swansong) {
			g := s.Guard()
			request := context.WithValue(s.Work(), key("k"), 1)
			done := s.Shutdown()
			_, ok := ctxshutdown.Acquire(s)
			c.isTrue("the soft tier refuses", !ok)
			more, ok := ctxshutdown.Acquire(request)
			c.isTrue("the hard tier admits", ok)
			c.sees(s, ctxshutdown.ShuttingDown, 2)
			sub := child(request)
			of, ok := sub.TryGuard()
			c.isTrue("so does a child of it", ok)
			c.sees(s, ctxshutdown.ShuttingDown, 3)
			c.isTrue("Go too", ctxshutdown.Go(request, func(context.Context) {}))
			g.Release()
			more.Release()
			c.isTrue("open for the child's guard", !resolved(done))
			of.Release()
			c.drains(done)
			c.workEnded(request, ctxshutdown.ErrShutdown) // the last guard may have been that of Go's goroutine
			_, ok = ctxshutdown.Acquire(request)
			c.isTrue("the drain is over: the hard tier refuses", !ok)
			_, ok = sub.TryGuard()
			c.isTrue("so does the child", !ok)
		}},
	})
	t.Run("without a scope", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		c := claim{t, "semantic 2"}
		g, ok := ctxshutdown.Acquire(ctx)
		c.isTrue("nil and true while ctx is not done", g == nil && ok)
		g.Clone().Release()
		cancel()
		_, ok = ctxshutdown.Acquire(ctx)
		c.isTrue("false once it is", !ok)
	})
	t.Run("a refusal does not seal", testRefusalIsCheap)
	t.Run("nobody is admitted after Done, and the completion waits for all", testAdmissionStress)
}

// testRefusalIsCheap looks at the first refusal after a signal from above. Sealing would walk the tree, and a walk
// copies the list of children at each step.
func testRefusalIsCheap(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	root := ctxshutdown.New(ctx)
	for range 10_000 {
		defer child(root).Guard().Release()
	}
	cancel()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, ok := root.TryGuard()
	runtime.ReadMemStats(&after)
	if ok {
		t.Error("semantic 2: admitted after the stop")
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 10_000 {
		t.Errorf("semantic 2: a refusal allocates %d bytes: it walks the tree", n)
	}
}

func testAdmissionStress(t *testing.T) {
	for range 2_000 {
		root := ctxshutdown.New(context.Background())
		leaf := child(child(root))
		done := leaf.Done()
		drained := root.Completion()
		var held atomic.Int64
		var racing sync.WaitGroup
		for range 4 {
			racing.Go(func() {
				for {
					seen := closed(done)
					g, ok := leaf.TryGuard()
					switch {
					case ok && seen:
						t.Error("semantic 2: admitted after Done was seen closed")
						g.Release()
						return
					case !ok:
						if leaf.Err() == nil || context.Cause(leaf) != errCause {
							t.Error("semantic 2: refused without Err and Cause")
						}
						return
					}
					held.Add(1)
					if resolved(drained) {
						t.Error("semantic 1: complete while an admitted guard is held")
					}
					runtime.Gosched()
					held.Add(-1)
					g.Release()
				}
			})
		}
		runtime.Gosched()
		root.ShutdownCause(errCause)
		<-drained.Done()
		if n := held.Load(); n != 0 {
			t.Errorf("semantic 1: complete while %d admitted guards are held", n)
		}
		racing.Wait()
	}
}

func TestSemantic3_CompletionsAreMonotonicStatesAreNot(t *testing.T) {
	testRules(t, "semantic 3", []rule{
		{"a late guard makes a new completion", func(c claim, s *ctxshutdown.Swansong) {
			var over []*ctxshutdown.Completion
			over = append(over, s.Completion(), s.Shutdown())
			for range 3 {
				g := s.Guard()
				c.sees(s, ctxshutdown.ShuttingDown, 1)
				fresh := []*ctxshutdown.Completion{s.Completion(), s.Shutdown(), s.Force(nil)}
				for i := range fresh {
					c.isTrue("the new ones wait for the guard", !resolved(fresh[i]))
				}
				for i := range over {
					c.isTrue("the old ones stay resolved", resolved(over[i]) && over[i].Wait(context.Background()) == nil)
				}
				g.Release()
				c.sees(s, ctxshutdown.Complete, 0)
				over = append(over, fresh...)
			}
			for i := range over {
				c.isTrue("in the end all are resolved", resolved(over[i]))
			}
		}},
		{"a late guard of a child does so for every ancestor", func(c claim, s *ctxshutdown.Swansong) {
			k := child(s)
			old := s.Shutdown()
			g := k.Guard()
			c.sees(s, ctxshutdown.ShuttingDown, 1)
			fresh := s.Completion()
			c.isTrue("old resolved, new open", resolved(old) && !resolved(fresh))
			g.Release()
			c.drains(fresh)
		}},
	})
	t.Run("racing, a late guard delays every completion not yet resolved", func(t *testing.T) {
		root := ctxshutdown.New(t.Context())
		root.Shutdown()
		var racing sync.WaitGroup
		for range 8 {
			racing.Go(func() {
				for range 2_500 {
					older := root.Completion().Done()
					g := root.Guard()
					over := closed(older) // nobody held a guard for a moment
					newer := root.Completion().Done()
					for range 20 { // somebody may be about to close them
						if closed(newer) || !over && closed(older) {
							t.Error("semantic 3: a completion that was open under a late guard resolves before its release")
							g.Release()
							return
						}
					}
					g.Release()
					runtime.Gosched()
				}
			})
		}
		racing.Wait()
		claim{t, "semantic 3"}.drains(root.Completion())
	})
}

func TestSemantic4_ChildrenNeverShow(t *testing.T) {
	testRules(t, "semantic 4", []rule{
		{"completing a child does not show at the parent", func(c claim, s *ctxshutdown.Swansong) {
			k := child(s, ctxshutdown.WithName("child"))
			g := k.Guard()
			done := k.Shutdown()
			c.sees(s, ctxshutdown.Running, 1)
			g.Release()
			c.drains(done)
			c.sees(s, ctxshutdown.Running, 0)
			c.equal("report", s.GuardReport().Entries(), []ctxshutdown.GuardEntry(nil))
			c.isTrue("the parent completes at once", resolved(s.Shutdown()))
		}},
		{"a child of Work counts when its parent stops, without being stopped", func(c claim, s *ctxshutdown.Swansong) {
			g := s.Guard()
			k := child(s.Work())
			of := k.Guard()
			done := s.Shutdown()
			c.sees(k, ctxshutdown.Running, 1)
			c.sees(s, ctxshutdown.ShuttingDown, 2)
			g.Release()
			c.isTrue("the parent waits for it", !resolved(done))
			of.Release()
			c.drains(done)
			c.ends("the child, as the parent's Work is over", k.Done())
		}},
	})
	t.Run("an idle scope stays registered while one below it holds a guard", func(t *testing.T) {
		c, root := claim{t, "semantic 4"}, ctxshutdown.New(t.Context())
		g := child(child(root, ctxshutdown.WithName("idle")), ctxshutdown.WithName("busy")).Guard()
		for range 200 { // others come and go, and are cleaned up
			child(root).Guard().Release()
		}
		c.equal("report", root.GuardReport().Entries(), []ctxshutdown.GuardEntry{{Path: "idle/busy", Count: 1}})
		done := root.Shutdown()
		c.sees(root, ctxshutdown.ShuttingDown, 1)
		g.Release()
		c.drains(done)
	})
	t.Run("a child is signalled before its scope counts as complete", func(t *testing.T) {
		// The signal comes from above and takes its time: a stopped parent may not be complete while a child admits.
		for range 2_000 {
			ctx, cancel := context.WithCancel(context.Background())
			root := ctxshutdown.New(ctx)
			kids := make([]*ctxshutdown.Swansong, 20)
			for i := range kids {
				kids[i] = child(root)
				kids[i].Done()
			}
			var racing sync.WaitGroup
			racing.Go(cancel)
			racing.Go(func() {
				for root.State() != ctxshutdown.Complete {
					runtime.Gosched()
				}
				for _, k := range kids {
					if _, ok := k.TryGuard(); ok {
						t.Error("semantic 2: a child admits although its parent is complete")
						return
					}
				}
			})
			racing.Wait()
		}
	})
	t.Run("no goroutine is left in a bubble", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := child(ctxshutdown.New(t.Context()))
			s.Done()
			s.Completion()
			s.Work()
			child(s).Go(func(context.Context) {})
		})
	})
}
