package ctxshutdown_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/testkit"
)

// This file tests the contract of a single scope, with one subtest for each rule on every kind of
// scope. See docs/internals/core.md#states.

func TestState_IsCompleteOnceStoppedAndWithoutGuards(t *testing.T) {
	testRules(t, "docs/internals/core.md#states", []rule{
		{"a scope that is not stopped is Running, with or without guards", func(c claim, s *ctxshutdown.Swansong) {
			c.checkState(s, ctxshutdown.Running, 0)
			g := s.Guard()
			c.checkState(s, ctxshutdown.Running, 1)
			g.Release()
			c.checkState(s, ctxshutdown.Running, 0)
		}},
		{"stopped with a guard is ShuttingDown, without is Complete", func(c claim, s *ctxshutdown.Swansong) {
			a, b := s.Guard(), s.Guard()
			done := s.Shutdown()
			c.checkState(s, ctxshutdown.ShuttingDown, 2)
			a.Release()
			c.checkState(s, ctxshutdown.ShuttingDown, 1)
			c.isTrue("a completion is open while a guard is held", !isResolved(done))
			b.Release()
			c.checkState(s, ctxshutdown.Complete, 0)
			c.awaitCompletion(done)
		}},
		{"a scope that is stopped without guards goes from Running to Complete", func(c claim, s *ctxshutdown.Swansong) {
			s.Guard().Release()
			before, done := s.Completion(), s.Shutdown()
			c.isTrue("every completion is resolved when Shutdown returns", isResolved(before) && isResolved(done))
			c.checkState(s, ctxshutdown.Complete, 0)
		}},
		{"a guard acquired after completion makes the state ShuttingDown again, and the old completion stays resolved", func(c claim, s *ctxshutdown.Swansong) {
			before, done := s.Completion(), s.Shutdown()
			g := s.Guard()
			c.checkState(s, ctxshutdown.ShuttingDown, 1)
			c.isTrue("completions resolved before the late guard stay so", isResolved(before) && isResolved(done))
			g.Release()
			c.checkState(s, ctxshutdown.Complete, 0)
		}},
	})
}

func TestScope_BasicOperationsHaveDocumentedEffects(t *testing.T) {
	testRules(t, "docs/internals/core.md#operations", []rule{
		{"a new scope is Running, and nothing of it has ended", func(c claim, s *ctxshutdown.Swansong) {
			c.checkState(s, ctxshutdown.Running, 0)
			c.isTrue("Done, Work and the completion are open", !testkit.IsClosed(s.Done()) && !testkit.IsClosed(s.Work().Done()) && !isResolved(s.Completion()))
			c.equal("cause", context.Cause(s), nil)
		}},
		{"a copy of the pointer is the same scope", func(c claim, s *ctxshutdown.Swansong) {
			clone := s
			c.isTrue("clones are equal", clone == s)
			c.checkState(s, ctxshutdown.Running, 0)
			g := clone.Guard()
			c.checkState(s, ctxshutdown.Running, 1)
			clone.Shutdown()
			c.checkState(s, ctxshutdown.ShuttingDown, 1)
			g.Release()
		}},
		{"a guard counts until its first release", func(c claim, s *ctxshutdown.Swansong) {
			g, other := s.Guard(), s.Guard()
			c.checkState(s, ctxshutdown.Running, 2)
			g.Release()
			g.Release()
			c.checkState(s, ctxshutdown.Running, 1)
			other.Release()
		}},
		{"each clone of a guard is counted independently", func(c claim, s *ctxshutdown.Swansong) {
			g := s.Guard()
			clone := g.Clone()
			c.checkState(s, ctxshutdown.Running, 2)
			g.Release()
			done := s.Shutdown()
			c.checkState(s, ctxshutdown.ShuttingDown, 1)
			c.isTrue("the clone delays completion", !isResolved(done))
			clone.Release()
			c.awaitCompletion(done)
		}},
		{"a goroutine of Go holds a guard from start to end", func(c claim, s *ctxshutdown.Swansong) {
			ending := make(chan struct{})
			c.isTrue("Go runs on a running scope", s.Go(func(context.Context) { <-ending }))
			c.checkState(s, ctxshutdown.Running, 1)
			done := s.Shutdown()
			c.isTrue("the goroutine delays the completion", !isResolved(done))
			close(ending)
			c.awaitCompletion(done)
		}},
		{"Shutdown stops the scope and is idempotent", func(c claim, s *ctxshutdown.Swansong) {
			g := s.Guard()
			first := s.Shutdown()
			err, cause := s.Err(), context.Cause(s)
			second := s.ShutdownCause(context.DeadlineExceeded)
			c.isTrue("Done is closed", testkit.IsClosed(s.Done()))
			c.isTrue("the first stop sets Err and the cause", s.Err() == err && context.Cause(s) == cause)
			g.Release()
			c.awaitCompletion(first)
			c.awaitCompletion(second)
			c.awaitCompletion(s.Shutdown())
		}},
		{"reading the state of a scope does not stop it", func(c claim, s *ctxshutdown.Swansong) {
			s.Done()
			_, _, _, _, _ = s.State(), s.GuardCount(), s.GuardReport(), s.Completion(), s.Work()
			c.checkState(s, ctxshutdown.Running, 0)
		}},
		{"a completion can be waited for without a stop", func(c claim, s *ctxshutdown.Swansong) {
			done := s.Completion()
			c.checkState(s, ctxshutdown.Running, 0)
			c.isTrue("a running scope without guards is not complete", !isResolved(done))
			g := s.Guard()
			s.Shutdown()
			c.isTrue("a stopped scope with a guard is not complete", !isResolved(done))
			g.Release()
			c.awaitCompletion(done)
		}},
	})
}

func TestGuard_IsCountedAfterScopeIsGarbageCollected(t *testing.T) {
	const source = "docs/internals/core.md#guard-lifetime"
	t.Run("a guard counts at its scope and every ancestor after the garbage collector ran", func(t *testing.T) {
		c, root := claim{t, source}, ctxshutdown.New(t.Context())
		middle := child(root)
		g := child(context.WithValue(child(middle), key("k"), 1)).Guard()
		runtime.GC()
		c.checkState(middle, ctxshutdown.Running, 1)
		done := root.Shutdown()
		runtime.GC()
		c.checkState(root, ctxshutdown.ShuttingDown, 1)
		c.isTrue("the guard delays the completion of the root", !isResolved(done))
		g.Release()
		c.awaitCompletion(done)
		c.checkState(middle, ctxshutdown.Complete, 0)
	})
	t.Run("a guard whose root was garbage-collected can be cloned and released", func(t *testing.T) {
		g := ctxshutdown.New(t.Context()).Guard()
		runtime.GC()
		clone := g.Clone()
		g.Release()
		clone.Release()
	})
}

// ended is a context whose Err reports an end and does not call Err of the wrapped context. From Go
// 1.26 on, context.Cause calls Err before it looks for the cause, and Err of a scope can decide
// which cause the scope has. context.Cause of an ended only looks for the cause.
type ended struct{ context.Context }

func (ended) Err() error { return context.Canceled }

func TestShutdown_IsFinalAndVisibleAtOnce(t *testing.T) {
	testRules(t, "docs/internals/core.md#guarantees", []rule{
		{"a stopped scope stays stopped", func(c claim, s *ctxshutdown.Swansong) {
			s.Shutdown()
			err, cause := s.Err(), context.Cause(s)
			for name, act := range map[string]func(){
				"a late guard":                 func() { s.Guard().Release() },
				"a refused guard":              func() { s.TryGuard() },
				"a late child":                 func() { child(s).Shutdown() },
				"another stop":                 func() { s.ShutdownCause(context.DeadlineExceeded) },
				"Force":                        func() { s.Force(nil) },
				"Work":                         func() { s.Work() },
				"Completion":                   func() { s.Completion() },
				"a context derived afterwards": func() { context.AfterFunc(s, func() {})() },
			} {
				act()
				c.isTrue("Err and cause do not change after "+name, s.Err() == err && context.Cause(s) == cause && testkit.IsClosed(s.Done()))
				c.checkState(s, ctxshutdown.Complete, 0)
			}
		}},
		{"the first cause that a caller sees stays, also if two stops race", func(c claim, s *ctxshutdown.Swansong) {
			// The child is stopped with errCause. While it checks that its parent is running, the
			// parent is stopped with another cause, which a third goroutine sees.
			var k *ctxshutdown.Swansong
			var seen error
			k = child(onErr{s, new(atomic.Int32), func(call int32, ctx context.Context) error {
				err := ctx.Err()
				if call == 1 {
					s.Shutdown()
					seen = context.Cause(ended{k})
				}
				return err
			}})
			k.ShutdownCause(errCause)
			c.isTrue("the cause has not changed", seen == context.Cause(k))
		}},
		{"Err, Cause and Done are set when Shutdown returns", func(c claim, s *ctxshutdown.Swansong) {
			underived, derived := child(s), child(child(s))
			derived.Done()
			std, cancel := context.WithCancel(s)
			defer cancel()
			value := context.WithValue(underived, key("k"), 1)
			g := s.Guard()
			defer g.Release()

			s.Shutdown()
			for _, ctx := range []context.Context{s, underived, derived, std, value} {
				c.equal("Err", ctx.Err() == context.Canceled, true)
				c.equal("Cause", context.Cause(ctx) == ctxshutdown.ErrShutdown, true)
				c.isTrue("Done is closed", testkit.IsClosed(ctx.Done()))
				_, ok := ctxshutdown.Acquire(ctx)
				c.isTrue("no admission after the stop", !ok && !ctxshutdown.Go(ctx, func(context.Context) {}))
			}
			_, ok := s.TryGuard()
			c.isTrue("no admission after the stop", !ok && !s.Go(func(context.Context) {}))
		}},
		{"a completion asked for after Shutdown resolves", func(c claim, s *ctxshutdown.Swansong) {
			g := s.Guard()
			s.Shutdown()
			done := s.Completion()
			g.Release()
			c.awaitCompletion(done)
			c.awaitCompletion(s.Completion())
		}},
	})
	t.Run("the drain ends when every guard is released", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { // if a goroutine blocks for ever, synctest panics, so the test fails
			c, root := claim{t, "docs/internals/core.md#guarantees"}, ctxshutdown.New(t.Context())
			scopes := []*ctxshutdown.Swansong{root}
			for len(scopes) < 20 {
				scopes = append(scopes, child(scopes[len(scopes)/2]))
			}
			for _, s := range scopes {
				go func() {
					for g, ok := s.TryGuard(); ok; g, ok = s.TryGuard() {
						late := g.Clone()
						g.Release()
						runtime.Gosched()
						late.Release()
					}
				}()
			}
			runtime.Gosched()
			done := root.Shutdown()
			if err := done.Wait(context.Background()); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			c.checkState(root, ctxshutdown.Complete, 0)
		})
	})
	t.Run("guard operations take no lock", testHotPaths)
}

// testHotPaths acquires guards and calls Err and Done, while another goroutine holds the locks of
// the same scopes, in order to copy long lists of children. No other operation takes these locks.
// So if the mutex profile of the runtime shows that a goroutine waited for one of them, a hot path
// takes a lock. The test links the scopes to their parents first, because the first guard of a
// child takes the lock of its parent.
func testHotPaths(t *testing.T) {
	defer runtime.SetMutexProfileFraction(runtime.SetMutexProfileFraction(1))
	root := ctxshutdown.New(t.Context())
	scopes := []*ctxshutdown.Swansong{root, child(child(root))}
	for _, s := range scopes {
		s.Done()
		for range 5_000 {
			defer child(s).Guard().Release()
		}
		defer s.Guard().Release()
	}
	before := mutexWaits()

	var hot sync.WaitGroup
	var finished atomic.Bool
	for _, s := range scopes {
		hot.Go(func() {
			for !finished.Load() {
				g, _ := s.TryGuard()
				clone := g.Clone()
				other, _ := ctxshutdown.Acquire(s)
				g.Release()
				clone.Release()
				other.Release()
				if s.Err() != nil || testkit.IsClosed(s.Done()) {
					t.Error("the scope ended without a stop")
				}
			}
		})
	}
	for range 20 {
		for _, s := range scopes {
			s.GuardCount()
			child(s).Guard().Release()
		}
	}
	finished.Store(true)
	hot.Wait()
	if n := mutexWaits() - before; n != 0 {
		t.Errorf("goroutines waited %d times for a mutex of the tree, so a hot path takes one", n)
	}
}

// mutexWaits returns how many times goroutines have waited for a mutex that was unlocked by code of
// this module.
func mutexWaits() (n int64) {
	records := make([]runtime.BlockProfileRecord, 1000)
	for {
		got, ok := runtime.MutexProfile(records)
		if ok {
			records = records[:got]
			break
		}
		records = make([]runtime.BlockProfileRecord, 2*got)
	}
	for _, r := range records {
		mutex, ours := false, false
		frames := runtime.CallersFrames(r.Stack())
		for more := true; more; {
			var f runtime.Frame
			f, more = frames.Next()
			mutex = mutex || strings.HasPrefix(f.Function, "sync.(*")
			ours = ours || strings.Contains(f.Function, "/internal/packed.") || strings.Contains(f.Function, "/ctxshutdown.(")
		}
		if mutex && ours {
			n += r.Count
		}
	}
	return n
}
