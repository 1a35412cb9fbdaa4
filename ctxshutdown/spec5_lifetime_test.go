package ctxshutdown_test

import (
	"context"
	"runtime"
	"testing"
	"weak"

	"github.com/swansong-go/swansong/ctxshutdown"
)

func TestSpec_5_5_LifetimeAndCollectibility(t *testing.T) {
	type scope = weak.Pointer[ctxshutdown.Swansong]
	testRules(t, "spec 5.5", []rule{
		{"a child has an identity of its own", func(c claim, s *ctxshutdown.Swansong) {
			a, b := child(s), child(s)
			c.isTrue("parent, child and sibling differ", s != a && s != b && a != b)
		}},
		{"a guard keeps its scope", func(c claim, s *ctxshutdown.Swansong) {
			lost, g := func() (scope, *ctxshutdown.Guard) {
				k := child(s)
				return weak.Make(k), k.Guard()
			}()
			c.isTrue("kept", !collected(lost))
			g.Release()
			runtime.KeepAlive(s)
		}},
		{"a released guard does not keep its scope", func(c claim, s *ctxshutdown.Swansong) {
			lost, g := func() (scope, *ctxshutdown.Guard) {
				k := ctxshutdown.New(context.Background())
				return weak.Make(k), k.Guard()
			}()
			g.Release()
			c.isTrue("collected", collected(lost))
			runtime.KeepAlive(g)
		}},
		{"an unresolved completion keeps its scope", func(c claim, s *ctxshutdown.Swansong) {
			lost, done := func() (scope, *ctxshutdown.Completion) {
				k := child(s)
				return weak.Make(k), k.Completion()
			}()
			c.isTrue("kept", !collected(lost))
			s.Shutdown()
			c.drains(done)
		}},
		{"a live descendant keeps its ancestors", func(c claim, s *ctxshutdown.Swansong) {
			lost, leaf := func() (scope, *ctxshutdown.Swansong) {
				k := child(s)
				return weak.Make(k), child(child(k))
			}()
			c.isTrue("kept", !collected(lost))
			runtime.KeepAlive(leaf)
		}},
		{"an ancestor does not pin a subtree of which no part is alive", func(c claim, s *ctxshutdown.Swansong) {
			lost, leaf := func() (scope, scope) {
				k := child(s)
				l := child(context.WithValue(k, key("k"), 1))
				return weak.Make(k), weak.Make(l)
			}()
			c.isTrue("collected", collected(lost) && collected(leaf))
			runtime.KeepAlive(s)
		}},
		{"a stopped child that held guards is collected", func(c claim, s *ctxshutdown.Swansong) {
			lost := func() scope {
				k := child(s)
				g := k.Guard()
				k.Work()
				k.Shutdown()
				g.Release()
				return weak.Make(k)
			}()
			c.isTrue("collected", collected(lost))
			runtime.KeepAlive(s)
		}},
		{"idle children that once held guards are collected as others come", func(c claim, s *ctxshutdown.Swansong) {
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
				c.Errorf("%s: of %d idle children %d are alive; a bounded clean-up leaves %d", c.source, many, alive, atMost)
			}
			runtime.KeepAlive(s)
		}},
		{"interrupts that are over do not keep a scope", func(c claim, s *ctxshutdown.Swansong) {
			lost := func() scope {
				k := child(s)
				once(k)
				return weak.Make(k)
			}()
			c.isTrue("collected", collected(lost))
			runtime.KeepAlive(s)
		}},
		{"a leaked guard keeps its scope registered and named", func(c claim, s *ctxshutdown.Swansong) {
			child(s, ctxshutdown.WithName("leak")).Guard()
			for range 100 { // so that a clean-up has every reason to run
				child(s).Guard().Release()
			}
			runtime.GC()
			s.Shutdown()
			c.sees(s, ctxshutdown.ShuttingDown, 1)
			c.equal("report", s.GuardReport().Entries(), []ctxshutdown.GuardEntry{{Path: "leak", Count: 1}})
		}},
		{"a goroutine that waits on a lost child is woken", func(c claim, s *ctxshutdown.Swansong) {
			woken := make(chan struct{})
			lost := func() scope {
				k := child(s)
				go func() { <-k.Done(); close(woken) }()
				return weak.Make(k)
			}()
			collected(lost)
			s.Shutdown()
			c.ends("the wait for the child", woken)
		}},
	})
}

func TestSpec_5_8_LosingAChild(t *testing.T) {
	testRules(t, "spec 5.8", []rule{
		{"does not signal shutdown", func(c claim, s *ctxshutdown.Swansong) {
			done := child(s).Done()
			low := context.WithValue(child(s), key("k"), 1)
			runtime.GC()
			runtime.GC()
			c.isTrue("the lost child is Running", !closed(done) && low.Err() == nil)
			c.sees(s, ctxshutdown.Running, 0)
			s.Shutdown()
			c.ends("the lost child, by its parent", done)
		}},
		{"with guards, it counts and stays Running until the parent stops", func(c claim, s *ctxshutdown.Swansong) {
			done, g := func() (<-chan struct{}, *ctxshutdown.Guard) {
				lost := child(s)
				return lost.Done(), lost.Guard()
			}()
			runtime.GC()
			c.isTrue("the lost child is Running", !closed(done))
			c.sees(s, ctxshutdown.Running, 1)
			end := s.Shutdown()
			c.ends("the lost child, by its parent", done)
			c.sees(s, ctxshutdown.ShuttingDown, 1)
			g.Release()
			c.drains(end)
		}},
		{"without guards and completions, it is collected", func(c claim, s *ctxshutdown.Swansong) {
			lost := func() weak.Pointer[ctxshutdown.Swansong] { return weak.Make(child(s)) }()
			c.isTrue("collected", collected(lost))
			runtime.KeepAlive(s)
		}},
	})
}
