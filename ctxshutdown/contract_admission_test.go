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
	"github.com/swansong-go/swansong/internal/testkit"
)

// This file tests guards, admission, completions and children: docs/internals/core.md#semantic-1,
// docs/internals/core.md#semantic-2, docs/internals/core.md#semantic-3 and
// docs/internals/core.md#semantic-4.

var errCause = errors.New("the cause")

// onErr is a context whose method Err calls f with the number of the call, counted from 1. So a
// test can act in the middle of an operation that calls Err.
type onErr struct {
	context.Context
	calls *atomic.Int32
	f     func(call int32, ctx context.Context) error
}

func (ctx onErr) Err() error { return ctx.f(ctx.calls.Add(1), ctx.Context) }

func TestShutdown_CompletionWaitsForEveryGuardOfSubtree(t *testing.T) {
	testRules(t, "docs/internals/core.md#semantic-1", []rule{
		{"a guard acquired before Shutdown is counted at every ancestor", func(c claim, s *ctxshutdown.Swansong) {
			scopes := []*ctxshutdown.Swansong{s}
			for range 6 {
				scopes = append(scopes, child(context.WithValue(scopes[len(scopes)-1], key("k"), 1)))
			}
			g := scopes[len(scopes)-1].Guard()
			done := s.Shutdown()
			for _, s := range scopes {
				c.checkState(s, ctxshutdown.ShuttingDown, 1)
			}
			g.Release()
			c.awaitCompletion(done)
		}},
		{"a child's first guard, after the stop, is counted before it is returned", func(c claim, s *ctxshutdown.Swansong) {
			before, g := child(s), s.Guard()
			done := s.Shutdown()
			for _, k := range []*ctxshutdown.Swansong{before, child(s), child(child(before)), child(context.WithoutCancel(s))} {
				next := k.Guard() // this is the first guard of the scope k
				g.Release()
				c.isTrue("the late guard is counted", !isResolved(done) && s.State() == ctxshutdown.ShuttingDown)
				g = next
			}
			g.Release()
			c.awaitCompletion(done)
		}},
	})
	t.Run("the second of two concurrent stops counts the guards that the first has not reached", func(t *testing.T) {
		c := claim{t, "docs/internals/core.md#semantic-1"}
		for range 50 {
			root := ctxshutdown.New(context.Background())
			middle := child(root)
			var guards []*ctxshutdown.Guard
			for range 1_000 { // with so many children, the stop of middle is not over when root is stopped
				guards = append(guards, child(middle).Guard())
			}
			var racing sync.WaitGroup
			racing.Go(func() { middle.Shutdown() })
			// When Err returns an error, the Shutdown of middle has cancelled the context of
			// middle. It has yet to stop the nodes of the children, which count the guards.
			for middle.Err() == nil {
				runtime.Gosched()
			}
			if done := root.Shutdown(); isResolved(done) || root.State() == ctxshutdown.Complete {
				t.Errorf("%s: complete while guards are held", c.source)
			}
			racing.Wait()
			for _, g := range guards {
				g.Release()
			}
			c.awaitCompletion(root.Completion())
			c.awaitCompletion(middle.Completion())
		}
	})
}

func TestTryGuard_RefusesAfterStopWithCause(t *testing.T) {
	testRules(t, "docs/internals/core.md#semantic-2", []rule{
		{"when TryGuard refuses, Err and Cause are set", func(c claim, s *ctxshutdown.Swansong) {
			for _, s := range []*ctxshutdown.Swansong{child(s), child(child(s)), s} {
				s.ShutdownCause(errCause)
				g, ok := s.TryGuard()
				c.isTrue("refused", g == nil && !ok)
				c.isTrue("Err and Cause are set", s.Err() == context.Canceled && context.Cause(s) == errCause)
				c.isTrue("Go refuses too", !s.Go(func(context.Context) { c.Error("Go was refused and calls f") }))
			}
		}},
		{"a scope whose stop was observed keeps its cause", func(c claim, s *ctxshutdown.Swansong) {
			underived := child(s)
			s.ShutdownCause(errCause)
			_, ok := underived.TryGuard()
			c.isTrue("refused", !ok)
			underived.ShutdownCause(errors.New("too late"))
			c.isTrue("the cause is that of the first stop", context.Cause(underived) == errCause)
		}},
		{"an error that Err has returned once stays, even during a concurrent Shutdown", func(c claim, s *ctxshutdown.Swansong) {
			var underived *ctxshutdown.Swansong
			underived = child(onErr{s, new(atomic.Int32), func(call int32, ctx context.Context) error {
				err := ctx.Err()
				// Shutdown of the child makes this call of Err before it stops the child. Stop the
				// parent during the call.
				if call == 1 {
					s.ShutdownCause(errCause)
					c.isTrue("the child has the error of its parent", underived.Err() == context.Canceled)
				}
				return err
			}})
			underived.Shutdown()
			c.isTrue("the cause does not change", context.Cause(underived) == errCause)
		}},
		{"TryGuard: stopped between counting and checking", func(c claim, s *ctxshutdown.Swansong) {
			var done *ctxshutdown.Completion
			_, ok := child(onErr{s, new(atomic.Int32), func(call int32, ctx context.Context) error {
				if call == 1 {
					done = s.Shutdown()
					c.isTrue("the guard is counted until it is refused", !isResolved(done))
				}
				return ctx.Err()
			}}).TryGuard()
			c.isTrue("refused", !ok && done != nil)
			c.isTrue("the refusal releases the last guard and so completes the scope", done != nil && isResolved(done))
			c.checkState(s, ctxshutdown.Complete, 0)
		}},
		{"Acquire: stopped between counting and checking", func(c claim, s *ctxshutdown.Swansong) {
			var done *ctxshutdown.Completion
			_, ok := ctxshutdown.Acquire(onErr{s, new(atomic.Int32), func(call int32, ctx context.Context) error {
				if call == 2 { // Acquire makes this call after it has counted the guard
					done = s.Shutdown()
					c.isTrue("the guard is counted until it is refused", !isResolved(done))
				}
				return ctx.Err()
			}})
			c.isTrue("refused", !ok && done != nil)
			c.isTrue("the refusal releases the last guard and so completes the scope", done != nil && isResolved(done))
			c.checkState(s, ctxshutdown.Complete, 0)
		}},
		{"Acquire decides by the context: during the drain Work admits and the scope refuses", func(c claim, s *ctxshutdown.Swansong) {
			g := s.Guard()
			request := context.WithValue(s.Work(), key("k"), 1)
			done := s.Shutdown()
			_, ok := ctxshutdown.Acquire(s)
			c.isTrue("the soft context refuses", !ok)
			more, ok := ctxshutdown.Acquire(request)
			c.isTrue("the hard context admits", ok)
			c.checkState(s, ctxshutdown.ShuttingDown, 2)
			sub := child(request)
			of, ok := sub.TryGuard()
			c.isTrue("a child of the hard context admits", ok)
			c.checkState(s, ctxshutdown.ShuttingDown, 3)
			c.isTrue("Go with the hard context starts", ctxshutdown.Go(request, func(context.Context) {}))
			g.Release()
			more.Release()
			c.isTrue("the completion waits for the guard of the child", !isResolved(done))
			of.Release()
			c.awaitCompletion(done)
			// The goroutine that Go started might hold the last guard, so wait until Work has
			// ended.
			c.workEnded(request, ctxshutdown.ErrShutdown)
			_, ok = ctxshutdown.Acquire(request)
			c.isTrue("after the completion the hard context refuses", !ok)
			_, ok = sub.TryGuard()
			c.isTrue("after the completion the child refuses", !ok)
		}},
	})
	t.Run("without a scope", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		c := claim{t, "docs/internals/core.md#semantic-2"}
		g, ok := ctxshutdown.Acquire(ctx)
		c.isTrue("Acquire returns nil and true while ctx is not done", g == nil && ok)
		g.Clone().Release()
		cancel()
		_, ok = ctxshutdown.Acquire(ctx)
		c.isTrue("Acquire returns false once ctx is done", !ok)
	})
	t.Run("a refused guard does not walk through the tree of scopes", testRefusalIsCheap)
	t.Run("TryGuard refuses after Done, and the completion waits for all guards", testAdmissionStress)
}

// testRefusalIsCheap measures how much the first refused TryGuard allocates after the parent
// context of the root has ended. If that TryGuard sealed the tree, it would copy the list of
// children at each scope, which allocates much more.
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
		t.Error("admitted after the stop")
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 10_000 {
		t.Errorf("a refused TryGuard allocates %d bytes, so it walks the tree", n)
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
					seen := testkit.IsClosed(done)
					g, ok := leaf.TryGuard()
					switch {
					case ok && seen:
						t.Error("admitted after Done was seen closed")
						g.Release()
						return
					case !ok:
						if leaf.Err() == nil || context.Cause(leaf) != errCause {
							t.Error("refused without Err and Cause")
						}
						return
					}
					held.Add(1)
					if isResolved(drained) {
						t.Error("complete while an admitted guard is held")
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
			t.Errorf("complete while %d admitted guards are held", n)
		}
		racing.Wait()
	}
}

func TestCompletion_StaysResolvedWhenGuardIsAcquiredLater(t *testing.T) {
	testRules(t, "docs/internals/core.md#semantic-3", []rule{
		{"a guard acquired after completion makes a new completion", func(c claim, s *ctxshutdown.Swansong) {
			var resolvedOnes []*ctxshutdown.Completion
			resolvedOnes = append(resolvedOnes, s.Completion(), s.Shutdown())
			for range 3 {
				g := s.Guard()
				c.checkState(s, ctxshutdown.ShuttingDown, 1)
				fresh := []*ctxshutdown.Completion{s.Completion(), s.Shutdown(), s.Force(nil)}
				for i := range fresh {
					c.isTrue("new completions wait for the late guard", !isResolved(fresh[i]))
				}
				for i := range resolvedOnes {
					c.isTrue("resolved completions stay resolved", isResolved(resolvedOnes[i]) && resolvedOnes[i].Wait(context.Background()) == nil)
				}
				g.Release()
				c.checkState(s, ctxshutdown.Complete, 0)
				resolvedOnes = append(resolvedOnes, fresh...)
			}
			for i := range resolvedOnes {
				c.isTrue("all completions are resolved in the end", isResolved(resolvedOnes[i]))
			}
		}},
		{"a guard acquired after completion on a child makes a new completion for every ancestor", func(c claim, s *ctxshutdown.Swansong) {
			k := child(s)
			old := s.Shutdown()
			g := k.Guard()
			c.checkState(s, ctxshutdown.ShuttingDown, 1)
			fresh := s.Completion()
			c.isTrue("the old completion is resolved and the new one is not", isResolved(old) && !isResolved(fresh))
			g.Release()
			c.awaitCompletion(fresh)
		}},
	})
	t.Run("a guard acquired during the last release delays every completion not yet resolved", func(t *testing.T) {
		root := ctxshutdown.New(t.Context())
		root.Shutdown()
		var racing sync.WaitGroup
		for range 8 {
			racing.Go(func() {
				for range 2_500 {
					older := root.Completion().Done()
					g := root.Guard()
					// If older is closed now, it resolved before root.Guard returned.
					wasClosed := testkit.IsClosed(older)
					newer := root.Completion().Done()
					for range 20 { // look several times, because another goroutine may be about to close a channel by mistake
						if testkit.IsClosed(newer) || !wasClosed && testkit.IsClosed(older) {
							t.Error("a completion that was open under a late guard resolves before its release")
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
		claim{t, "docs/internals/core.md#semantic-3"}.awaitCompletion(root.Completion())
	})
}

func TestChild_AffectsParentOnlyByItsGuards(t *testing.T) {
	testRules(t, "docs/internals/core.md#semantic-4", []rule{
		{"completing a child does not change the parent", func(c claim, s *ctxshutdown.Swansong) {
			k := child(s, ctxshutdown.WithName("child"))
			g := k.Guard()
			done := k.Shutdown()
			c.checkState(s, ctxshutdown.Running, 1)
			g.Release()
			c.awaitCompletion(done)
			c.checkState(s, ctxshutdown.Running, 0)
			c.equal("report", s.GuardReport().Entries(), []ctxshutdown.GuardEntry(nil))
			c.isTrue("the parent completes at once when it is stopped", isResolved(s.Shutdown()))
		}},
		{"a child of Work keeps running when its parent stops, and its guards count", func(c claim, s *ctxshutdown.Swansong) {
			g := s.Guard()
			k := child(s.Work())
			of := k.Guard()
			done := s.Shutdown()
			c.checkState(k, ctxshutdown.Running, 1)
			c.checkState(s, ctxshutdown.ShuttingDown, 2)
			g.Release()
			c.isTrue("the parent waits for the guard of the child", !isResolved(done))
			of.Release()
			c.awaitCompletion(done)
			c.awaitClosed("the Done of the child when the Work of its parent has ended", k.Done())
		}},
	})
	t.Run("an idle scope stays registered while one below it holds a guard", func(t *testing.T) {
		c, root := claim{t, "docs/internals/core.md#semantic-4"}, ctxshutdown.New(t.Context())
		g := child(child(root, ctxshutdown.WithName("idle")), ctxshutdown.WithName("busy")).Guard()
		for range 200 { // so many siblings that the list of children is swept several times
			child(root).Guard().Release()
		}
		c.equal("report", root.GuardReport().Entries(), []ctxshutdown.GuardEntry{{Path: "idle/busy", Count: 1}})
		done := root.Shutdown()
		c.checkState(root, ctxshutdown.ShuttingDown, 1)
		g.Release()
		c.awaitCompletion(done)
	})
	t.Run("a child is signalled before its scope counts as complete", func(t *testing.T) {
		// Cancelling the context above the root takes some time, because package context cancels
		// the children one after the other. The root must not be complete before all of them are
		// cancelled.
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
						t.Error("TryGuard of a child succeeds although its parent is complete")
						return
					}
				}
			})
			racing.Wait()
		}
	})
	t.Run("scopes leave no goroutine in a synctest bubble", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := child(ctxshutdown.New(t.Context()))
			s.Done()
			s.Completion()
			s.Work()
			child(s).Go(func(context.Context) {})
		})
	})
}

// Every ancestor counts every guard whose acquisition has returned, even if two guards of one scope
// are acquired at the same time. The published algorithm, described in
// docs/internals/counting.md#the-published-algorithm, fails this test.
func TestGuardCount_IsExactUnderConcurrency(t *testing.T) {
	c := claim{t, "docs/internals/core.md#semantic-1"}
	tree := func() (root, leaf *ctxshutdown.Swansong) {
		root = ctxshutdown.New(context.Background())
		leaf = root
		for range 4 {
			leaf = child(leaf)
		}
		return root, leaf
	}
	t.Run("of two guards on a leaf before the stop", func(t *testing.T) {
		for range 10_000 {
			root, leaf := tree()
			var racing sync.WaitGroup
			racing.Go(func() { leaf.Guard().Release() })
			g := leaf.Guard()
			done := root.Shutdown()
			if isResolved(done) || root.State() == ctxshutdown.Complete {
				t.Fatalf("%s: complete while a guard is held", c.source)
			}
			g.Release()
			racing.Wait()
			c.awaitCompletion(done)
		}
	})
	t.Run("of guards that come and go after the stop", func(t *testing.T) {
		root, leaf := tree()
		root.Shutdown()
		var racing sync.WaitGroup
		for range 8 {
			racing.Go(func() {
				for range 5_000 {
					g := leaf.Guard()
					if root.State() == ctxshutdown.Complete || isResolved(root.Completion()) {
						t.Errorf("%s: complete while a guard is held", c.source)
						g.Release()
						return
					}
					g.Release()
					runtime.Gosched()
				}
			})
		}
		racing.Wait()
		c.checkState(root, ctxshutdown.Complete, 0)
	})
}

// Once the Done channel of a scope is closed, TryGuard refuses and Seq yields no element, even
// while package context is still cancelling other contexts that derive from the scope.
func TestTryGuard_RefusesAfterDone(t *testing.T) {
	for round := range 50 {
		root := ctxshutdown.New(context.Background())
		s := root
		for range round % 2 * 3 { // in every other round, the scope is three levels below the root
			s, _ = ctxshutdown.WithCancel(s)
		}
		g := s.Guard() // puts s into the list of children of its parent, if s has a parent
		for range 1000 {
			owned(t)(context.WithCancel(s))
		}
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			root.Shutdown()
		}()
		<-s.Done()
		if g, ok := s.TryGuard(); ok {
			t.Errorf("a stopped scope admits: %v", s.GuardReport())
			g.Release()
		}
		for range ctxshutdown.Seq(s, endless) {
			t.Error("a stopped scope iterates")
			break
		}
		g.Release()
		<-stopped
	}
}

// A context above a root, or between two scopes, is cancelled by other code than this package, so
// the scopes below have not been warned before the cancellation. TryGuard must refuse afterwards
// all the same. See docs/internals/counting.md#warning.
func TestTryGuard_RefusesAfterContextAboveScopeIsCancelled(t *testing.T) {
	root := ctxshutdown.New(context.Background())
	defer root.Shutdown()
	for name, from := range map[string]func(context.Context) *ctxshutdown.Swansong{
		"root":  func(ctx context.Context) *ctxshutdown.Swansong { return ctxshutdown.New(ctx) },
		"child": func(ctx context.Context) *ctxshutdown.Swansong { s, _ := ctxshutdown.WithCancel(ctx); return s },
		"grandchild": func(ctx context.Context) *ctxshutdown.Swansong {
			s, _ := ctxshutdown.WithCancel(ctx)
			s, _ = ctxshutdown.WithCancel(s)
			return s
		},
	} {
		ctx, cancel := context.WithCancel(root)
		if name == "root" {
			ctx, cancel = context.WithCancel(context.Background())
		}
		s := from(ctx)
		first, ok := s.TryGuard()
		// The first guard has put s into the child list of its parent, if it has one.
		second, ok2 := s.TryGuard()
		if !ok || !ok2 {
			t.Errorf("%s: a running scope refuses", name)
		}
		cancel()
		if g, ok := s.TryGuard(); ok {
			t.Errorf("%s: admitted although its context has ended", name)
			g.Release()
		}
		first.Release()
		second.Release()
		s.Shutdown()
	}
}
