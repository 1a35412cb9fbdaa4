package ctxshutdown_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/ctxshutdown"
)

// callbackContext is a context whose methods call a function that uses the scopes deriving from it.
// If that function calls the methods again, these do not call the function a second time.
type callbackContext struct {
	context.Context
	callback *func()
	inside   *atomic.Bool
}

func (m callbackContext) call() {
	if f := *m.callback; f != nil && m.inside.CompareAndSwap(false, true) {
		defer m.inside.Store(false)
		f()
	}
}

func (m callbackContext) Deadline() (time.Time, bool) { m.call(); return m.Context.Deadline() }

func (m callbackContext) Done() <-chan struct{} { m.call(); return m.Context.Done() }

func (m callbackContext) Err() error { m.call(); return m.Context.Err() }

func (m callbackContext) Value(key any) any { m.call(); return m.Context.Value(key) }

// withinTime calls f. If f does not return in time, for example because a callback waits for a lock
// that its caller holds, withinTime ends the program and prints the stacks of all goroutines.
func withinTime(f func()) {
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		f()
	}()
	select {
	case <-finished:
	case <-time.After(10 * time.Second):
		stacks := make([]byte, 1<<20)
		panic(fmt.Sprintf("deadlock:\n%s", stacks[:runtime.Stack(stacks, true)]))
	}
}

func TestLocks_AreNotHeldDuringContextCallbacks(t *testing.T) {
	for _, callback := range []struct {
		name string
		with func(root, s *ctxshutdown.Swansong)
	}{
		{"State", func(root, s *ctxshutdown.Swansong) { root.State(); s.State() }},
		{"Guard", func(root, s *ctxshutdown.Swansong) { root.Guard().Release(); s.Guard().Release() }},
		{"TryGuard", func(_, s *ctxshutdown.Swansong) { g, _ := s.TryGuard(); g.Release() }},
		{"Completion and Work", func(root, s *ctxshutdown.Swansong) { root.Completion(); s.Completion(); s.Work().Done() }},
		{"Report", func(root, s *ctxshutdown.Swansong) { root.GuardReport(); s.GuardCount() }},
		{"WithCancel", func(root, s *ctxshutdown.Swansong) {
			child(root).Guard().Release()
			child(s).Done()
			child(s).Shutdown()
		}},
		{"Shutdown of the scope", func(_, s *ctxshutdown.Swansong) { s.Shutdown() }},
		{"Shutdown of the root", func(root, _ *ctxshutdown.Swansong) { root.Shutdown() }},
		{"Force", func(root, s *ctxshutdown.Swansong) { s.Force(nil); root.Force(nil) }},
	} {
		for _, act := range []struct {
			name string
			on   func(s *ctxshutdown.Swansong)
		}{
			{"Done", func(s *ctxshutdown.Swansong) { s.Done() }},
			{"Err and State", func(s *ctxshutdown.Swansong) { s.Err(); s.State() }},
			{"Deadline and Value", func(s *ctxshutdown.Swansong) { s.Deadline(); s.Value(key("k")) }},
			{"guards", func(s *ctxshutdown.Swansong) {
				s.Guard().Release()
				g, _ := s.TryGuard()
				g.Release()
				g, _ = ctxshutdown.Acquire(s)
				g.Release()
			}},
			{"derivation", func(s *ctxshutdown.Swansong) {
				below, cancel := context.WithCancel(child(s))
				defer cancel()
				child(below).Done()
			}},
			{"Completion and Work", func(s *ctxshutdown.Swansong) { s.Completion(); s.Work().Done() }},
			{"Shutdown", func(s *ctxshutdown.Swansong) { s.Shutdown() }},
			{"Shutdown of one waited on", func(s *ctxshutdown.Swansong) { s.Done(); s.Completion(); s.Guard(); s.Shutdown() }},
			{"Force", func(s *ctxshutdown.Swansong) { s.Work().Done(); s.Force(nil) }},
		} {
			t.Run(act.name+" calling "+callback.name, func(t *testing.T) {
				root := ctxshutdown.New(t.Context())
				var f func()
				m := callbackContext{root, &f, new(atomic.Bool)}
				s := child(m)
				f = func() { callback.with(root, s) }
				withinTime(func() {
					act.on(s)
					f = nil
					root.Shutdown()
				})
			})
		}
	}
}

func TestLocks_ShutdownInAfterFuncDoesNotDeadlock(t *testing.T) {
	for range 200 {
		root := ctxshutdown.New(t.Context())
		a := child(root)
		b := child(a)
		kids := []*ctxshutdown.Swansong{root, a, b, child(b.Work()), child(root.Work())}
		for _, s := range kids {
			s.Work().Done()
			s.Completion().Done()
		}
		withinTime(func() {
			var called sync.WaitGroup
			for i, s := range kids {
				called.Add(1)
				context.AfterFunc(s, func() {
					defer called.Done()
					s.Guard().Release()
					for _, k := range kids {
						k.Shutdown()
					}
					kids[(i+1)%len(kids)].Force(nil)
				})
			}
			root.Shutdown()
			called.Wait()
		})
		for i, s := range kids {
			if s.State() != ctxshutdown.Complete {
				t.Fatalf("scope %d is %v", i, s.State())
			}
		}
	}
}

// When a scope is stopped, it unregisters the AfterFunc that watches its context. In this test that
// AfterFunc can be running at the same time.
func TestLocks_ConcurrentStopsDoNotDeadlock(t *testing.T) {
	withinTime(func() {
		for range 500 {
			ctx, cancel := context.WithCancel(context.Background())
			root := ctxshutdown.New(ctx)
			s := child(child(root))
			g := s.Guard()
			done, work := s.Completion(), s.Work()
			undo := context.AfterFunc(s, func() { root.Shutdown() })
			context.AfterFunc(s, func() { undo(); s.Force(nil) })
			var racing sync.WaitGroup
			for _, stop := range []func(){cancel, func() { root.Shutdown() }, func() { s.ShutdownCause(errCause) }, func() { s.Completion() }} {
				racing.Go(stop)
			}
			racing.Wait()
			g.Release()
			<-done.Done()
			<-work.Done()
			if diff := cmp.Diff([]ctxshutdown.State{ctxshutdown.Complete, ctxshutdown.Complete}, []ctxshutdown.State{root.State(), s.State()}); diff != "" {
				t.Error(diff)
				return
			}
		}
	})
}
