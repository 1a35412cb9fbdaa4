package ctxshutdown_test

import (
	"context"
	"runtime"
	"testing"
	"weak"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/testkit"
)

func TestScope_IsGarbageCollectedWhenUnreachable(t *testing.T) {
	type scope = weak.Pointer[ctxshutdown.Swansong]
	testRules(t, "docs/internals/core.md#collection", []rule{
		{"every scope is a different pointer", func(c claim, s *ctxshutdown.Swansong) {
			a, b := child(s), child(s)
			c.isTrue("parent, child and sibling differ", s != a && s != b && a != b)
		}},
		{"a guard keeps its scope", func(c claim, s *ctxshutdown.Swansong) {
			scopePointer, g := func() (scope, *ctxshutdown.Guard) {
				k := child(s)
				return weak.Make(k), k.Guard()
			}()
			c.isTrue("the scope is kept", !isCollected(scopePointer))
			g.Release()
			runtime.KeepAlive(s)
		}},
		{"a released guard does not keep its scope", func(c claim, s *ctxshutdown.Swansong) {
			scopePointer, g := func() (scope, *ctxshutdown.Guard) {
				k := ctxshutdown.New(context.Background())
				return weak.Make(k), k.Guard()
			}()
			g.Release()
			c.isTrue("the scope is collected", isCollected(scopePointer))
			runtime.KeepAlive(g)
		}},
		{"an unresolved completion keeps its scope", func(c claim, s *ctxshutdown.Swansong) {
			scopePointer, done := func() (scope, *ctxshutdown.Completion) {
				k := child(s)
				return weak.Make(k), k.Completion()
			}()
			c.isTrue("the scope is kept", !isCollected(scopePointer))
			s.Shutdown()
			c.awaitCompletion(done)
		}},
		{"a live descendant keeps its ancestors", func(c claim, s *ctxshutdown.Swansong) {
			scopePointer, leaf := func() (scope, *ctxshutdown.Swansong) {
				k := child(s)
				return weak.Make(k), child(child(k))
			}()
			c.isTrue("the scope is kept", !isCollected(scopePointer))
			runtime.KeepAlive(leaf)
		}},
		{"an ancestor does not keep a subtree that is unreachable otherwise", func(c claim, s *ctxshutdown.Swansong) {
			scopePointer, leaf := func() (scope, scope) {
				k := child(s)
				l := child(context.WithValue(k, key("k"), 1))
				return weak.Make(k), weak.Make(l)
			}()
			c.isTrue("the scope is collected", isCollected(scopePointer) && isCollected(leaf))
			runtime.KeepAlive(s)
		}},
		{"a stopped child that held guards is collected", func(c claim, s *ctxshutdown.Swansong) {
			scopePointer := func() scope {
				k := child(s)
				g := k.Guard()
				k.Work()
				k.Shutdown()
				g.Release()
				return weak.Make(k)
			}()
			c.isTrue("the scope is collected", isCollected(scopePointer))
			runtime.KeepAlive(s)
		}},
		{"idle children that once held guards are collected when siblings are added", func(c claim, s *ctxshutdown.Swansong) {
			const many, atMost = 1000, 64
			kids := make([]scope, many)
			for i := range kids {
				k := child(s)
				k.Guard().Release()
				kids[i] = weak.Make(k)
			}
			runtime.GC()
			alive := 0
			for _, k := range kids {
				if k.Value() != nil {
					alive++
				}
			}
			if alive > atMost {
				c.Errorf("%s: %d idle children were created and %d are alive; the sweeps should leave at most %d", c.source, many, alive, atMost)
			}
			runtime.KeepAlive(s)
		}},
		{"Readers, Writers and loops that have ended do not keep a scope", func(c claim, s *ctxshutdown.Swansong) {
			scopePointer := func() scope {
				k := child(s)
				useOnce(k)
				return weak.Make(k)
			}()
			c.isTrue("the scope is collected", isCollected(scopePointer))
			runtime.KeepAlive(s)
		}},
		{"a leaked guard keeps its scope, and reports name it", func(c claim, s *ctxshutdown.Swansong) {
			child(s, ctxshutdown.WithName("leak")).Guard()
			for range 100 { // so many siblings that the list of children is swept several times
				child(s).Guard().Release()
			}
			runtime.GC()
			s.Shutdown()
			c.checkState(s, ctxshutdown.ShuttingDown, 1)
			c.equal("report", s.GuardReport().Entries(), []ctxshutdown.GuardEntry{{Path: "leak", Count: 1}})
		}},
		{"a goroutine that waits for a forgotten child is woken", func(c claim, s *ctxshutdown.Swansong) {
			woken := make(chan struct{})
			scopePointer := func() scope {
				k := child(s)
				go func() { <-k.Done(); close(woken) }()
				return weak.Make(k)
			}()
			isCollected(scopePointer)
			s.Shutdown()
			c.awaitClosed("the wait for the child", woken)
		}},
	})
}

func TestForgottenChild_RunsUntilParentStops(t *testing.T) {
	testRules(t, "docs/internals/core.md#forgotten-children", []rule{
		{"a forgotten child is not stopped", func(c claim, s *ctxshutdown.Swansong) {
			done := child(s).Done()
			low := context.WithValue(child(s), key("k"), 1)
			runtime.GC()
			runtime.GC()
			c.isTrue("the forgotten child is Running", !testkit.IsClosed(done) && low.Err() == nil)
			c.checkState(s, ctxshutdown.Running, 0)
			s.Shutdown()
			c.awaitClosed("Done of the forgotten child when the parent stops", done)
		}},
		{"a forgotten child with guards counts and runs until the parent stops", func(c claim, s *ctxshutdown.Swansong) {
			done, g := func() (<-chan struct{}, *ctxshutdown.Guard) {
				forgotten := child(s)
				return forgotten.Done(), forgotten.Guard()
			}()
			runtime.GC()
			c.isTrue("the forgotten child is Running", !testkit.IsClosed(done))
			c.checkState(s, ctxshutdown.Running, 1)
			end := s.Shutdown()
			c.awaitClosed("Done of the forgotten child when the parent stops", done)
			c.checkState(s, ctxshutdown.ShuttingDown, 1)
			g.Release()
			c.awaitCompletion(end)
		}},
		{"a forgotten child without guards and completions is collected", func(c claim, s *ctxshutdown.Swansong) {
			scopePointer := func() weak.Pointer[ctxshutdown.Swansong] { return weak.Make(child(s)) }()
			c.isTrue("the scope is collected", isCollected(scopePointer))
			runtime.KeepAlive(s)
		}},
	})
}

// The garbage collection of a child scope does not close the Done channel of the scope, and does
// not end contexts that derive from it. They end when the parent is stopped.
func TestForgottenChild_GarbageCollectionCancelsNoDerivedContext(t *testing.T) {
	c, root := claim{t, "docs/internals/core.md#collection"}, ctxshutdown.New(t.Context())
	lost, done := func() (weak.Pointer[ctxshutdown.Swansong], <-chan struct{}) {
		s := child(root)
		return weak.Make(s), s.Done()
	}()
	kept, interrupt := func() (weak.Pointer[ctxshutdown.Swansong], context.Context) {
		s := child(root)
		return weak.Make(s), context.WithValue(s, key("k"), 1)
	}()
	c.isTrue("a scope is collected although its Done channel is in use", isCollected(lost))
	c.isTrue("a scope is kept while a context derives from it", !isCollected(kept))
	c.isTrue("neither of them has ended", !testkit.IsClosed(done) && interrupt.Err() == nil)
	root.Shutdown()
	c.awaitClosed("Done of a collected scope", done)
	c.awaitClosed("a context that derives from a forgotten scope", interrupt.Done())
}
