package ctxshutdown_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/testkit"
)

// This file tests the contract of the tree of scopes, with one subtest for each rule. See
// docs/internals/core.md#children. The tests use a context that derives from a scope in place of an
// interrupt, because interrupts use such a context.

func TestChild_GuardsCountForEveryAncestor(t *testing.T) {
	const source = "docs/internals/core.md#children"
	t.Run("the guards of a child are a part of the guards of its parent", func(t *testing.T) {
		c, parent := claim{t, source}, ctxshutdown.New(t.Context())
		s := child(parent)
		mine, g := parent.Guard(), s.Guard()
		c.checkState(s, ctxshutdown.Running, 1)
		c.checkState(parent, ctxshutdown.Running, 2)
		mine.Release()
		g.Release()
	})
	// This test checks the counts of nested scopes only. The function testRules checks that a child
	// satisfies the contract of a single scope.
	t.Run("scopes nest to any shape", func(t *testing.T) {
		c, root := claim{t, source}, ctxshutdown.New(t.Context())
		rnd := rand.New(rand.NewPCG(5, 1))
		scopes, up := []*ctxshutdown.Swansong{root}, []int{-1}
		want := []int{0}
		var guards []*ctxshutdown.Guard
		for i := 1; i < 200; i++ {
			p := rnd.IntN(i)
			scopes, up, want = append(scopes, child(scopes[p])), append(up, p), append(want, 0)
			for at := rnd.IntN(i + 1); rnd.IntN(3) > 0; at = rnd.IntN(i + 1) {
				guards = append(guards, scopes[at].Guard())
				for ; at >= 0; at = up[at] {
					want[at]++
				}
			}
		}
		for i, s := range scopes {
			c.equal("guards in the subtree", s.GuardCount(), want[i])
		}
		done := root.Shutdown()
		for i, s := range scopes {
			state := ctxshutdown.Complete
			if want[i] > 0 {
				state = ctxshutdown.ShuttingDown
			}
			c.checkState(s, state, want[i])
		}
		for _, g := range guards {
			c.isTrue("not complete before the last guard is released", !isResolved(done))
			g.Release()
		}
		c.awaitCompletion(done)
		for _, s := range scopes {
			c.checkState(s, ctxshutdown.Complete, 0)
		}
	})
}

func TestChild_WithoutGuardsNeverDelaysParent(t *testing.T) {
	testRules(t, "docs/internals/core.md#guards-are-the-only-work", []rule{
		{"creating a child changes nothing that its parent reports", func(c claim, s *ctxshutdown.Swansong) {
			done := s.Completion()
			child(s).Done()
			c.checkState(s, ctxshutdown.Running, 0)
			g := s.Guard()
			child(s)
			c.checkState(s, ctxshutdown.Running, 1)
			s.Shutdown()
			child(s)
			c.checkState(s, ctxshutdown.ShuttingDown, 1)
			g.Release()
			c.isTrue("the scope completes without delay", isResolved(done))
			child(s)
			c.checkState(s, ctxshutdown.Complete, 0)
		}},
		{"garbage collection or stop of a child without guards changes nothing that its parent reports", func(c claim, s *ctxshutdown.Swansong) {
			func() {
				child(s)
				child(s).Guard().Release()
				child(s).Shutdown()
			}()
			runtime.GC()
			c.checkState(s, ctxshutdown.Running, 0)
			c.isTrue("the scope completes without delay", isResolved(s.Shutdown()))
		}},
		{"a guard of a forgotten child counts at the parent", func(c claim, s *ctxshutdown.Swansong) {
			for _, take := range []func() *ctxshutdown.Guard{s.Guard, child(s).Guard, child(child(s)).Guard} {
				g := take()
				runtime.GC()
				c.checkState(s, ctxshutdown.Running, 1)
				g.Release()
				c.checkState(s, ctxshutdown.Running, 0)
			}
			g := child(s).Guard()
			done := s.Shutdown()
			c.checkState(s, ctxshutdown.ShuttingDown, 1)
			g.Release()
			c.awaitCompletion(done)
		}},
		{"a child without guards never delays an ancestor", func(c claim, s *ctxshutdown.Swansong) {
			idle := child(child(s))
			idle.Done()
			idle.Work()
			idle.Completion()
			c.isTrue("the scope is complete when Shutdown returns", isResolved(s.Shutdown()))
		}},
		{"children do not count as guards", func(c claim, s *ctxshutdown.Swansong) {
			var kids []*ctxshutdown.Swansong
			for range 10 {
				kids = append(kids, child(s))
			}
			c.equal("guards", s.GuardCount(), 0)
			g := kids[0].Guard()
			c.equal("guards", s.GuardCount(), 1)
			g.Release()
			runtime.KeepAlive(kids)
		}},
	})
}

func TestShutdown_StopsDescendantsAndWaitsForTheirGuards(t *testing.T) {
	testRules(t, "docs/internals/core.md#propagation", []rule{
		{"a stop reaches all descendants", func(c claim, s *ctxshutdown.Swansong) {
			direct := child(s)
			value := context.WithValue(direct, key("k"), 1)
			deep := child(value)
			interrupt, cancel := context.WithCancel(deep)
			defer cancel()
			g := deep.Guard()
			s.Shutdown()
			c.checkState(direct, ctxshutdown.ShuttingDown, 1)
			c.checkState(deep, ctxshutdown.ShuttingDown, 1)
			c.isTrue("contexts in the subtree end", testkit.IsClosed(interrupt.Done()) && testkit.IsClosed(value.Done()))
			g.Release()
			c.checkState(direct, ctxshutdown.Complete, 0)
		}},
		{"a stop does not reach ancestors", func(c claim, s *ctxshutdown.Swansong) {
			middle := child(s)
			low := child(middle)
			g := low.Guard()
			done := low.Shutdown()
			c.checkState(middle, ctxshutdown.Running, 1)
			c.checkState(s, ctxshutdown.Running, 1)
			g.Release()
			c.awaitCompletion(done)
			c.checkState(s, ctxshutdown.Running, 0)
			_, ok := s.TryGuard()
			c.isTrue("the parent still admits", ok)
		}},
		{"the completion resolves when the entire subtree has drained", func(c claim, s *ctxshutdown.Swansong) {
			guards := []*ctxshutdown.Guard{s.Guard(), child(s).Guard(), child(child(child(s))).Guard()}
			done := s.Shutdown()
			for _, g := range guards {
				c.isTrue("the completion waits for every guard of the subtree", !isResolved(done))
				g.Release()
			}
			c.awaitCompletion(done)
		}},
		{"a scope is Complete if and only if it is stopped and its subtree holds no guards", func(c claim, s *ctxshutdown.Swansong) {
			a, b := child(s), child(s)
			g := a.Guard()
			b.Shutdown()
			c.checkState(b, ctxshutdown.Complete, 0)
			s.Shutdown()
			c.checkState(a, ctxshutdown.ShuttingDown, 1)
			c.checkState(b, ctxshutdown.Complete, 0)
			c.checkState(s, ctxshutdown.ShuttingDown, 1)
			g.Release()
			c.checkState(a, ctxshutdown.Complete, 0)
			c.checkState(s, ctxshutdown.Complete, 0)
		}},
		{"siblings are independent", func(c claim, s *ctxshutdown.Swansong) {
			a, b := child(s), child(s)
			ga, gb := a.Guard(), b.Guard()
			a.Shutdown()
			c.checkState(a, ctxshutdown.ShuttingDown, 1)
			c.checkState(b, ctxshutdown.Running, 1)
			ga.Release()
			c.checkState(a, ctxshutdown.Complete, 0)
			c.checkState(b, ctxshutdown.Running, 1)
			gb.Release()
		}},
	})
}

func TestGuardCount_CountsSubtreeOnly(t *testing.T) {
	c := claim{t, "docs/internals/core.md#observation"}
	root, unrelated := ctxshutdown.New(t.Context()), ctxshutdown.New(t.Context())
	a, b := child(root), child(root)
	leaf := child(a)
	defer unrelated.Guard().Release()
	ga, gb, gl := a.Guard(), b.Guard(), leaf.Guard()

	// A scope counts the guards of its subtree. It does not count child scopes or guards of
	// unrelated trees.
	c.checkState(root, ctxshutdown.Running, 3)
	c.checkState(a, ctxshutdown.Running, 2)
	c.checkState(b, ctxshutdown.Running, 1)
	c.checkState(leaf, ctxshutdown.Running, 1)

	done := map[*ctxshutdown.Swansong]*ctxshutdown.Completion{root: root.Shutdown(), a: a.Shutdown(), b: b.Shutdown(), leaf: leaf.Shutdown()}
	for _, step := range []struct {
		guard *ctxshutdown.Guard
		want  map[*ctxshutdown.Swansong]int
	}{
		{nil, map[*ctxshutdown.Swansong]int{root: 3, a: 2, b: 1, leaf: 1}},
		{gl, map[*ctxshutdown.Swansong]int{root: 2, a: 1, b: 1, leaf: 0}},
		{ga, map[*ctxshutdown.Swansong]int{root: 1, a: 0, b: 1, leaf: 0}},
		{gb, map[*ctxshutdown.Swansong]int{root: 0, a: 0, b: 0, leaf: 0}},
	} {
		step.guard.Release()
		for s, n := range step.want {
			state := ctxshutdown.Complete
			if n > 0 {
				state = ctxshutdown.ShuttingDown
			}
			c.checkState(s, state, n)
			c.equal("the completion is resolved", isResolved(done[s]), n == 0)
		}
	}
}

func TestChild_CreatedDuringStopIsStopped(t *testing.T) {
	testRules(t, "docs/internals/core.md#ordering", []rule{
		{"a child created before the stop is stopped", func(c claim, s *ctxshutdown.Swansong) {
			underived, derived := child(s), child(s)
			done := derived.Done()
			s.Shutdown()
			c.awaitClosed("Done of the child", done)
			c.checkState(underived, ctxshutdown.Complete, 0)
		}},
		{"a child created after the stop is stopped from the start", func(c claim, s *ctxshutdown.Swansong) {
			s.Shutdown()
			late := child(s)
			c.isTrue("the child is stopped from the start", late.Err() != nil && testkit.IsClosed(late.Done()))
			_, ok := late.TryGuard()
			c.isTrue("TryGuard of the child refuses", !ok)
			c.checkState(late, ctxshutdown.Complete, 0)
		}},
	})
	t.Run("created during the stop, the child is stopped and its guard is counted or refused", func(t *testing.T) {
		for _, admit := range []struct {
			name string
			take func(s *ctxshutdown.Swansong) *ctxshutdown.Guard
		}{
			{"TryGuard", func(s *ctxshutdown.Swansong) *ctxshutdown.Guard { g, _ := s.TryGuard(); return g }},
			{"Guard", (*ctxshutdown.Swansong).Guard},
		} {
			t.Run(admit.name, func(t *testing.T) {
				for range 2_000 {
					raceCreation(claim{t, "docs/internals/core.md#ordering"}, admit.take)
				}
			})
		}
	})
}

// raceCreation stops a root while two goroutines create children and acquire guards of them.
func raceCreation(c claim, take func(*ctxshutdown.Swansong) *ctxshutdown.Guard) {
	root := ctxshutdown.New(c.Context())
	defer root.Shutdown()
	middle := child(root)
	var kids [2]*ctxshutdown.Swansong
	var guards [2]*ctxshutdown.Guard
	var racing sync.WaitGroup
	for i := range kids {
		racing.Go(func() {
			kids[i] = child(middle)
			guards[i] = take(kids[i])
		})
	}
	done := root.Shutdown()
	racing.Wait()
	held := 0
	for i, k := range kids {
		if k.Err() == nil || !testkit.IsClosed(k.Done()) {
			c.Fatalf("%s: a child is left running under a stopped parent", c.source)
		}
		if guards[i] != nil {
			held++
		}
	}
	if n := root.GuardCount(); n != held || root.State() == ctxshutdown.Complete != (held == 0) {
		c.Fatalf("%s: %d guards are held, the root counts %d and is %v", c.source, held, n, root.State())
	}
	for _, g := range guards {
		g.Release()
	}
	c.awaitCompletion(done)
	c.awaitCompletion(root.Completion())
	c.awaitCompletion(middle.Completion())
}

func TestChild_GuardsCountAfterStopAndAfterChildIsForgotten(t *testing.T) {
	testRules(t, "docs/internals/core.md#edge-cases", []rule{
		{"a guard acquired after the stop delays open completions and not resolved ones", func(c claim, s *ctxshutdown.Swansong) {
			first := s.Guard()
			open := s.Shutdown()
			late := s.Guard()
			c.checkState(s, ctxshutdown.ShuttingDown, 2)
			first.Release()
			c.isTrue("the late guard delays an open completion", !isResolved(open))
			late.Release()
			c.awaitCompletion(open)

			later := s.Guard()
			c.isTrue("a resolved completion stays resolved", isResolved(open))
			c.isTrue("a completion asked for under the late guard is open", !isResolved(s.Completion()))
			later.Release()
			c.awaitCompletion(s.Completion())
		}},
		{"a child of a stopped parent is stopped from the start, and its guards count", func(c claim, s *ctxshutdown.Swansong) {
			g := s.Guard()
			done := s.Shutdown()
			late := child(s)
			c.checkState(late, ctxshutdown.Complete, 0)
			of := late.Guard()
			c.checkState(late, ctxshutdown.ShuttingDown, 1)
			c.checkState(s, ctxshutdown.ShuttingDown, 2)
			g.Release()
			c.isTrue("the guard of the child delays the completion of the parent", !isResolved(done))
			of.Release()
			c.awaitCompletion(done)
			c.awaitCompletion(late.Completion())
		}},
		{"a guard counts although its child is forgotten", func(c claim, s *ctxshutdown.Swansong) {
			g := child(s).Guard()
			runtime.GC()
			c.checkState(s, ctxshutdown.Running, 1)
			done := s.Shutdown()
			runtime.GC()
			c.isTrue("the guard still counts", !isResolved(done))
			g.Release()
			c.awaitCompletion(done)
		}},
		{"a context ends with the parent although its child is forgotten", func(c claim, s *ctxshutdown.Swansong) {
			interrupt, cancel := context.WithCancel(child(child(s)))
			defer cancel()
			value := context.WithValue(child(s), key("k"), 1)
			runtime.GC()
			c.isTrue("the contexts have not ended before the stop", interrupt.Err() == nil && value.Err() == nil)
			s.Shutdown()
			c.awaitClosed("the context of a forgotten child", interrupt.Done())
			c.awaitClosed("the context of a forgotten child", value.Done())
		}},
	})
	t.Run("the depth is not limited", func(t *testing.T) {
		c, root := claim{t, "docs/internals/core.md#edge-cases"}, ctxshutdown.New(t.Context())
		leaf := root
		for range 100_000 {
			leaf = child(leaf)
		}
		g, ok := leaf.TryGuard()
		c.isTrue("TryGuard succeeds", ok)
		c.checkState(root, ctxshutdown.Running, 1)
		ended := leaf.Done()
		done := root.Shutdown()
		c.awaitClosed("Done of the leaf", ended)
		c.checkState(root, ctxshutdown.ShuttingDown, 1)
		g.Release()
		c.awaitCompletion(done)
		c.checkState(leaf, ctxshutdown.Complete, 0)
	})
}

func TestRoot_StopsDescendantsHoweverItEnds(t *testing.T) {
	for _, way := range []struct {
		name string
		stop func(root *ctxshutdown.Swansong, cancel context.CancelFunc)
	}{
		{"Shutdown", func(root *ctxshutdown.Swansong, _ context.CancelFunc) { root.Shutdown() }},
		{"the context that the root derives from is cancelled", func(_ *ctxshutdown.Swansong, cancel context.CancelFunc) { cancel() }},
		{"the context that the root derives from times out", func(*ctxshutdown.Swansong, context.CancelFunc) { time.Sleep(time.Hour) }},
	} {
		t.Run(way.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := claim{t, "docs/internals/core.md#cascade"}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				root := ctxshutdown.New(ctx)
				middle := child(root)
				leaf := child(context.WithValue(middle, key("k"), 1))
				interrupt, cancelled := context.WithCancel(leaf)
				defer cancelled()
				g, mine := leaf.Guard(), middle.Guard()
				done := root.Completion()

				way.stop(root, cancel)
				synctest.Wait()
				c.isTrue("a derived context ends", testkit.IsClosed(interrupt.Done()))
				c.isTrue("the completion waits for the guards", !isResolved(done))
				c.checkState(leaf, ctxshutdown.ShuttingDown, 1)
				c.checkState(middle, ctxshutdown.ShuttingDown, 2)
				g.Release()
				c.checkState(leaf, ctxshutdown.Complete, 0)
				c.checkState(root, ctxshutdown.ShuttingDown, 1)
				mine.Release()
				c.awaitCompletion(done)
			})
		})
	}
}
