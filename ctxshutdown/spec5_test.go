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
)

// The specification's section 5, one test for each subsection and one subtest for each rule. An interrupt is stood in
// for by a context derived from the scope, which is what interrupts hold. 5.5 and 5.8 are in spec5_lifetime_test.go.

func TestSpec_5_1_Operation(t *testing.T) {
	const source = "spec 5.1"
	t.Run("the child names a subset strictly inside the parent's", func(t *testing.T) {
		c, parent := claim{t, source}, ctxshutdown.New(t.Context())
		s := child(parent)
		mine, g := parent.Guard(), s.Guard()
		c.sees(s, ctxshutdown.Running, 1)
		c.sees(parent, ctxshutdown.Running, 2)
		mine.Release()
		g.Release()
	})
	// That a child satisfies section 3 is what testRules tests.
	t.Run("nesting is arbitrary", func(t *testing.T) {
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
			c.sees(s, state, want[i])
		}
		for _, g := range guards {
			c.isTrue("not complete before the last guard is released", !resolved(done))
			g.Release()
		}
		c.drains(done)
		for _, s := range scopes {
			c.sees(s, ctxshutdown.Complete, 0)
		}
	})
}

func TestSpec_5_2_GuardsAreTheOnlyWork(t *testing.T) {
	testRules(t, "spec 5.2", []rule{
		{"creating a child is transparent", func(c claim, s *ctxshutdown.Swansong) {
			done := s.Completion()
			child(s).Done()
			c.sees(s, ctxshutdown.Running, 0)
			g := s.Guard()
			child(s)
			c.sees(s, ctxshutdown.Running, 1)
			s.Shutdown()
			child(s)
			c.sees(s, ctxshutdown.ShuttingDown, 1)
			g.Release()
			c.isTrue("no delay to completion", resolved(done))
			child(s)
			c.sees(s, ctxshutdown.Complete, 0)
		}},
		{"losing or stopping a child without guards is transparent", func(c claim, s *ctxshutdown.Swansong) {
			func() {
				child(s)
				child(s).Guard().Release()
				child(s).Shutdown()
			}()
			runtime.GC()
			c.sees(s, ctxshutdown.Running, 0)
			c.isTrue("no delay to completion", resolved(s.Shutdown()))
		}},
		{"a guard of a lost child is as good as one of the parent", func(c claim, s *ctxshutdown.Swansong) {
			for _, take := range []func() *ctxshutdown.Guard{s.Guard, child(s).Guard, child(child(s)).Guard} {
				g := take()
				runtime.GC()
				c.sees(s, ctxshutdown.Running, 1)
				g.Release()
				c.sees(s, ctxshutdown.Running, 0)
			}
			g := child(s).Guard()
			done := s.Shutdown()
			c.sees(s, ctxshutdown.ShuttingDown, 1)
			g.Release()
			c.drains(done)
		}},
		{"a child that never registers a guard never delays an ancestor", func(c claim, s *ctxshutdown.Swansong) {
			idle := child(child(s))
			idle.Done()
			idle.Work()
			idle.Completion()
			c.isTrue("complete at once", resolved(s.Shutdown()))
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

func TestSpec_5_3_Propagation(t *testing.T) {
	testRules(t, "spec 5.3", []rule{
		{"shutdown propagates downward, direct and transitive", func(c claim, s *ctxshutdown.Swansong) {
			direct := child(s)
			value := context.WithValue(direct, key("k"), 1)
			deep := child(value)
			interrupt, cancel := context.WithCancel(deep)
			defer cancel()
			g := deep.Guard()
			s.Shutdown()
			c.sees(direct, ctxshutdown.ShuttingDown, 1)
			c.sees(deep, ctxshutdown.ShuttingDown, 1)
			c.isTrue("interrupts in the subtree see the stop", closed(interrupt.Done()) && closed(value.Done()))
			g.Release()
			c.sees(direct, ctxshutdown.Complete, 0)
		}},
		{"shutdown does not propagate upward", func(c claim, s *ctxshutdown.Swansong) {
			middle := child(s)
			low := child(middle)
			g := low.Guard()
			done := low.Shutdown()
			c.sees(middle, ctxshutdown.Running, 1)
			c.sees(s, ctxshutdown.Running, 1)
			g.Release()
			c.drains(done)
			c.sees(s, ctxshutdown.Running, 0)
			_, ok := s.TryGuard()
			c.isTrue("the parent still admits", ok)
		}},
		{"the completion resolves when the entire subtree has drained", func(c claim, s *ctxshutdown.Swansong) {
			guards := []*ctxshutdown.Guard{s.Guard(), child(s).Guard(), child(child(child(s))).Guard()}
			done := s.Shutdown()
			for _, g := range guards {
				c.isTrue("open while a guard is held anywhere", !resolved(done))
				g.Release()
			}
			c.drains(done)
		}},
		{"a node is Complete iff stopped and its subset holds no guards", func(c claim, s *ctxshutdown.Swansong) {
			a, b := child(s), child(s)
			g := a.Guard()
			b.Shutdown()
			c.sees(b, ctxshutdown.Complete, 0)
			s.Shutdown()
			c.sees(a, ctxshutdown.ShuttingDown, 1)
			c.sees(b, ctxshutdown.Complete, 0)
			c.sees(s, ctxshutdown.ShuttingDown, 1)
			g.Release()
			c.sees(a, ctxshutdown.Complete, 0)
			c.sees(s, ctxshutdown.Complete, 0)
		}},
		{"siblings are independent", func(c claim, s *ctxshutdown.Swansong) {
			a, b := child(s), child(s)
			ga, gb := a.Guard(), b.Guard()
			a.Shutdown()
			c.sees(a, ctxshutdown.ShuttingDown, 1)
			c.sees(b, ctxshutdown.Running, 1)
			ga.Release()
			c.sees(a, ctxshutdown.Complete, 0)
			c.sees(b, ctxshutdown.Running, 1)
			gb.Release()
		}},
	})
}

func TestSpec_5_4_Observation(t *testing.T) {
	c := claim{t, "spec 5.4"}
	root, unrelated := ctxshutdown.New(t.Context()), ctxshutdown.New(t.Context())
	a, b := child(root), child(root)
	leaf := child(a)
	defer unrelated.Guard().Release()
	ga, gb, gl := a.Guard(), b.Guard(), leaf.Guard()

	// Real guards only: not child scopes, not bookkeeping, not unrelated trees.
	c.sees(root, ctxshutdown.Running, 3)
	c.sees(a, ctxshutdown.Running, 2)
	c.sees(b, ctxshutdown.Running, 1)
	c.sees(leaf, ctxshutdown.Running, 1)

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
			c.sees(s, state, n)
			c.equal("shut_down().await has resolved", resolved(done[s]), n == 0)
		}
	}
}

func TestSpec_5_6_OrderingAndRaces(t *testing.T) {
	testRules(t, "spec 5.6", []rule{
		{"a child created before the shutdown observes it", func(c claim, s *ctxshutdown.Swansong) {
			unwired, wired := child(s), child(s)
			done := wired.Done()
			s.Shutdown()
			c.ends("the child's Done", done)
			c.sees(unwired, ctxshutdown.Complete, 0)
		}},
		{"a child created after the shutdown is born stopped", func(c claim, s *ctxshutdown.Swansong) {
			s.Shutdown()
			late := child(s)
			c.isTrue("stopped at birth", late.Err() != nil && closed(late.Done()))
			_, ok := late.TryGuard()
			c.isTrue("no admission", !ok)
			c.sees(late, ctxshutdown.Complete, 0)
		}},
	})
	t.Run("racing, the child is stopped and its guard is counted or refused", func(t *testing.T) {
		for _, admit := range []struct {
			name string
			take func(s *ctxshutdown.Swansong) *ctxshutdown.Guard
		}{
			{"TryGuard", func(s *ctxshutdown.Swansong) *ctxshutdown.Guard { g, _ := s.TryGuard(); return g }},
			{"Guard", (*ctxshutdown.Swansong).Guard},
		} {
			t.Run(admit.name, func(t *testing.T) {
				for range 2_000 {
					raceCreation(claim{t, "spec 5.6"}, admit.take)
				}
			})
		}
	})
}

// raceCreation stops a root while two goroutines make children and take guards on them.
func raceCreation(c claim, take func(*ctxshutdown.Swansong) *ctxshutdown.Guard) {
	root := ctxshutdown.New(c.Context())
	defer root.Shutdown() // also takes the root off the test's context
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
		if k.Err() == nil || !closed(k.Done()) {
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
	c.drains(done)
	c.drains(root.Completion())
	c.drains(middle.Completion())
}

func TestSpec_5_7_EdgeCases(t *testing.T) {
	testRules(t, "spec 5.7", []rule{
		{"a late guard is a normal guard and un-resolves nothing", func(c claim, s *ctxshutdown.Swansong) {
			first := s.Guard()
			open := s.Shutdown()
			late := s.Guard()
			c.sees(s, ctxshutdown.ShuttingDown, 2)
			first.Release()
			c.isTrue("it delays a completion not yet resolved", !resolved(open))
			late.Release()
			c.drains(open)

			later := s.Guard()
			c.isTrue("what has resolved stays resolved", resolved(open))
			c.isTrue("what is asked for now is not", !resolved(s.Completion()))
			later.Release()
			c.drains(s.Completion())
		}},
		{"a child of a stopped parent is stopped from birth, its guards count", func(c claim, s *ctxshutdown.Swansong) {
			g := s.Guard()
			done := s.Shutdown()
			late := child(s)
			c.sees(late, ctxshutdown.Complete, 0)
			of := late.Guard()
			c.sees(late, ctxshutdown.ShuttingDown, 1)
			c.sees(s, ctxshutdown.ShuttingDown, 2)
			g.Release()
			c.isTrue("it delays the parent's completion", !resolved(done))
			of.Release()
			c.drains(done)
			c.drains(late.Completion())
		}},
		{"a guard outlives the child's handle", func(c claim, s *ctxshutdown.Swansong) {
			g := child(s).Guard()
			runtime.GC()
			c.sees(s, ctxshutdown.Running, 1)
			done := s.Shutdown()
			runtime.GC()
			c.isTrue("it still counts", !resolved(done))
			g.Release()
			c.drains(done)
		}},
		{"an interrupt outlives the child's handle", func(c claim, s *ctxshutdown.Swansong) {
			interrupt, cancel := context.WithCancel(child(child(s)))
			defer cancel()
			value := context.WithValue(child(s), key("k"), 1)
			runtime.GC()
			c.isTrue("Running until the parent stops", interrupt.Err() == nil && value.Err() == nil)
			s.Shutdown()
			c.ends("the interrupt", interrupt.Done())
			c.ends("the interrupt", value.Done())
		}},
	})
	t.Run("recursive depth is not limited", func(t *testing.T) {
		c, root := claim{t, "spec 5.7"}, ctxshutdown.New(t.Context())
		leaf := root
		for range 100_000 {
			leaf = child(leaf)
		}
		g, ok := leaf.TryGuard()
		c.isTrue("admitted", ok)
		c.sees(root, ctxshutdown.Running, 1)
		ended := leaf.Done()
		done := root.Shutdown()
		c.ends("the leaf's Done", ended)
		c.sees(root, ctxshutdown.ShuttingDown, 1)
		g.Release()
		c.drains(done)
		c.sees(leaf, ctxshutdown.Complete, 0)
	})
}

func TestSpec_5_9_CascadingShutdown(t *testing.T) {
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
				c := claim{t, "spec 5.9"}
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
				c.isTrue("interrupts wake", closed(interrupt.Done()))
				c.isTrue("guards drain on their own schedule", !resolved(done))
				c.sees(leaf, ctxshutdown.ShuttingDown, 1)
				c.sees(middle, ctxshutdown.ShuttingDown, 2)
				g.Release()
				c.sees(leaf, ctxshutdown.Complete, 0)
				c.sees(root, ctxshutdown.ShuttingDown, 1)
				mine.Release()
				c.drains(done)
			})
		})
	}
}
