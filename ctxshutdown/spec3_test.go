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
)

// The specification's section 3, one test for each subsection and one subtest for each rule, on every kind of scope.
//
// Where it says clone of a handle, Go copies a pointer; where a handle or a guard is dropped, Go calls Shutdown or
// Release; guarded(T) is Go, the guarded goroutine; IntoFuture is Completion. The interrupt operation of 3.2 is tested
// with the interrupts. 3.3 is in differences_test.go: a lost root is reported, not stopped.

func TestSpec_3_1_States(t *testing.T) {
	testRules(t, "spec 3.1", []rule{
		{"not stopped is Running, whatever is held", func(c claim, s *ctxshutdown.Swansong) {
			c.sees(s, ctxshutdown.Running, 0)
			g := s.Guard()
			c.sees(s, ctxshutdown.Running, 1)
			g.Release()
			c.sees(s, ctxshutdown.Running, 0)
		}},
		{"stopped with a guard is ShuttingDown, without is Complete", func(c claim, s *ctxshutdown.Swansong) {
			a, b := s.Guard(), s.Guard()
			done := s.Shutdown()
			c.sees(s, ctxshutdown.ShuttingDown, 2)
			a.Release()
			c.sees(s, ctxshutdown.ShuttingDown, 1)
			c.isTrue("a completion is open while a guard is held", !resolved(done))
			b.Release()
			c.sees(s, ctxshutdown.Complete, 0)
			c.drains(done)
		}},
		{"stopped while no guards exist goes from Running to Complete", func(c claim, s *ctxshutdown.Swansong) {
			s.Guard().Release()
			before, done := s.Completion(), s.Shutdown()
			c.isTrue("every completion is resolved when Shutdown returns", resolved(before) && resolved(done))
			c.sees(s, ctxshutdown.Complete, 0)
		}},
		{"a resolved completion does not un-resolve, the state does", func(c claim, s *ctxshutdown.Swansong) {
			before, done := s.Completion(), s.Shutdown()
			g := s.Guard()
			c.sees(s, ctxshutdown.ShuttingDown, 1)
			c.isTrue("completions resolved before the late guard stay so", resolved(before) && resolved(done))
			g.Release()
			c.sees(s, ctxshutdown.Complete, 0)
		}},
	})
}

func TestSpec_3_2_Operations(t *testing.T) {
	testRules(t, "spec 3.2", []rule{
		{"a new scope is fresh and Running", func(c claim, s *ctxshutdown.Swansong) {
			c.sees(s, ctxshutdown.Running, 0)
			c.isTrue("nothing has ended", !closed(s.Done()) && !closed(s.Work().Done()) && !resolved(s.Completion()))
			c.equal("cause", context.Cause(s), nil)
		}},
		{"a copy of the pointer is the same scope", func(c claim, s *ctxshutdown.Swansong) {
			clone := s
			c.isTrue("clones are equal", clone == s)
			c.sees(s, ctxshutdown.Running, 0)
			g := clone.Guard()
			c.sees(s, ctxshutdown.Running, 1)
			clone.Shutdown()
			c.sees(s, ctxshutdown.ShuttingDown, 1)
			g.Release()
		}},
		{"guard counts until it is released, once", func(c claim, s *ctxshutdown.Swansong) {
			g, other := s.Guard(), s.Guard()
			c.sees(s, ctxshutdown.Running, 2)
			g.Release()
			g.Release()
			c.sees(s, ctxshutdown.Running, 1)
			other.Release()
		}},
		{"each clone of a guard is counted independently", func(c claim, s *ctxshutdown.Swansong) {
			g := s.Guard()
			clone := g.Clone()
			c.sees(s, ctxshutdown.Running, 2)
			g.Release()
			done := s.Shutdown()
			c.sees(s, ctxshutdown.ShuttingDown, 1)
			c.isTrue("the clone delays completion", !resolved(done))
			clone.Release()
			c.drains(done)
		}},
		{"guarded work holds a guard from start to end", func(c claim, s *ctxshutdown.Swansong) {
			ending := make(chan struct{})
			c.isTrue("Go runs on a running scope", s.Go(func(context.Context) { <-ending }))
			c.sees(s, ctxshutdown.Running, 1)
			done := s.Shutdown()
			c.isTrue("guarded work delays completion", !resolved(done))
			close(ending)
			c.drains(done)
		}},
		{"shut_down signals stop and is idempotent", func(c claim, s *ctxshutdown.Swansong) {
			g := s.Guard()
			first := s.Shutdown()
			err, cause := s.Err(), context.Cause(s)
			second := s.ShutdownCause(context.DeadlineExceeded)
			c.isTrue("Done is closed", closed(s.Done()))
			c.isTrue("the first stop is what counts", s.Err() == err && context.Cause(s) == cause)
			g.Release()
			c.drains(first)
			c.drains(second)
			c.drains(s.Shutdown())
		}},
		{"observing does not signal stop", func(c claim, s *ctxshutdown.Swansong) {
			s.Done()
			_, _, _, _, _ = s.State(), s.GuardCount(), s.GuardReport(), s.Completion(), s.Work()
			c.sees(s, ctxshutdown.Running, 0)
		}},
		{"awaiting the scope is awaiting its completion without signalling", func(c claim, s *ctxshutdown.Swansong) {
			done := s.Completion()
			c.sees(s, ctxshutdown.Running, 0)
			c.isTrue("a running scope is not complete, guards or no guards", !resolved(done))
			g := s.Guard()
			s.Shutdown()
			c.isTrue("nor is one with a guard", !resolved(done))
			g.Release()
			c.drains(done)
		}},
	})
}

func TestSpec_3_4_GuardLifetime(t *testing.T) {
	const source = "spec 3.4"
	t.Run("a guard decrements its scope and every ancestor when all handles are gone", func(t *testing.T) {
		c, root := claim{t, source}, ctxshutdown.New(t.Context())
		middle := child(root)
		g := child(context.WithValue(child(middle), key("k"), 1)).Guard()
		runtime.GC()
		c.sees(middle, ctxshutdown.Running, 1)
		done := root.Shutdown()
		runtime.GC()
		c.sees(root, ctxshutdown.ShuttingDown, 1)
		c.isTrue("the orphaned guard delays the root", !resolved(done))
		g.Release()
		c.drains(done)
		c.sees(middle, ctxshutdown.Complete, 0)
	})
	t.Run("a guard of a lost root has no observable effect", func(t *testing.T) {
		g := ctxshutdown.New(t.Context()).Guard()
		runtime.GC()
		clone := g.Clone()
		g.Release()
		clone.Release()
	})
}

func TestSpec_3_5_Invariants(t *testing.T) {
	testRules(t, "spec 3.5", []rule{
		{"monotonicity: stopped is latching", func(c claim, s *ctxshutdown.Swansong) {
			s.Shutdown()
			err, cause := s.Err(), context.Cause(s)
			for name, act := range map[string]func(){
				"a late guard":     func() { s.Guard().Release() },
				"a refused guard":  func() { s.TryGuard() },
				"a late child":     func() { child(s).Shutdown() },
				"another stop":     func() { s.ShutdownCause(context.DeadlineExceeded) },
				"Force":            func() { s.Force(nil) },
				"Work":             func() { s.Work() },
				"Completion":       func() { s.Completion() },
				"a context on top": func() { context.AfterFunc(s, func() {})() },
			} {
				act()
				c.isTrue("stopped as before after "+name, s.Err() == err && context.Cause(s) == cause && closed(s.Done()))
				c.sees(s, ctxshutdown.Complete, 0)
			}
		}},
		{"signal visibility: whoever looks after Shutdown sees it", func(c claim, s *ctxshutdown.Swansong) {
			unwired, wired := child(s), child(child(s))
			wired.Done()
			std, cancel := context.WithCancel(s)
			defer cancel()
			value := context.WithValue(unwired, key("k"), 1)
			g := s.Guard()
			defer g.Release()

			s.Shutdown()
			for _, ctx := range []context.Context{s, unwired, wired, std, value} {
				c.equal("Err", ctx.Err() == context.Canceled, true)
				c.equal("Cause", context.Cause(ctx) == ctxshutdown.ErrShutdown, true)
				c.isTrue("Done is closed", closed(ctx.Done()))
				_, ok := ctxshutdown.Acquire(ctx)
				c.isTrue("no more admission", !ok && !ctxshutdown.Go(ctx, func(context.Context) {}))
			}
			_, ok := s.TryGuard()
			c.isTrue("no more admission", !ok && !s.Go(func(context.Context) {}))
		}},
		{"a completion asked for after Shutdown resolves", func(c claim, s *ctxshutdown.Swansong) {
			g := s.Guard()
			s.Shutdown()
			done := s.Completion()
			g.Release()
			c.drains(done)
			c.drains(s.Completion())
		}},
	})
	t.Run("liveness: shutting down terminates when every guard is released", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { // a bubble ends with a panic where something waits for ever
			c, root := claim{t, "spec 3.5"}, ctxshutdown.New(t.Context())
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
				t.Error("spec 3.5:", err)
			}
			synctest.Wait()
			c.sees(root, ctxshutdown.Complete, 0)
		})
	})
	t.Run("hot paths are lock-free", testHotPaths)
}

// testHotPaths takes guards and looks for the signal while another goroutine keeps the locks of the same scopes busy,
// copying long lists of children. That goroutine is alone with them: if anybody ever waits for a mutex of the tree, a
// hot path takes one, and the runtime records every such wait. The scopes are registered with their parents before; the
// first guard of a child is what does that, under the parent's lock.
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
	before := waits()

	var hot sync.WaitGroup
	var over atomic.Bool
	for _, s := range scopes {
		hot.Go(func() {
			for !over.Load() {
				g, _ := s.TryGuard()
				clone := g.Clone()
				other, _ := ctxshutdown.Acquire(s)
				g.Release()
				clone.Release()
				other.Release()
				if s.Err() != nil || closed(s.Done()) {
					t.Error("spec 3.5: stopped by nobody")
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
	over.Store(true)
	hot.Wait()
	if n := waits() - before; n != 0 {
		t.Errorf("spec 3.5: somebody waited %d times for a mutex of the tree: a hot path takes it", n)
	}
}

// waits counts how often so far a goroutine waited for a mutex until code of this module unlocked it.
func waits() (n int64) {
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
