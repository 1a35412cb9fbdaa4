package ctxshutdown_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/ctxshutdown"
)

// The core flows inside testing/synctest bubbles, where nobody may be left behind and time is exact. What the tests of
// this file share is that they would hang, or end the process, where something is wrong.

func TestBubble_Flows(t *testing.T) {
	began := func() func() time.Duration {
		start := time.Now()
		return func() time.Duration { return time.Since(start) }
	}
	for _, flow := range []struct {
		name string
		run  func(c claim, s *ctxshutdown.Swansong)
	}{
		{"Wait returns with the last guard, to the moment", func(c claim, s *ctxshutdown.Swansong) {
			elapsed := began()
			for i := range 5 {
				s.Go(func(ctx context.Context) { ctxshutdown.Sleep(ctx, time.Duration(i)*time.Second) })
			}
			c.drains(s.Shutdown())
			c.equal("time", elapsed(), 4*time.Second)
		}},
		{"Wait gives up to the moment, and names who is left", func(c claim, s *ctxshutdown.Swansong) {
			elapsed := began()
			g := s.Guard()
			defer g.Release()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			var drain *ctxshutdown.DrainError
			err := s.Shutdown().Wait(ctx)
			c.isTrue("a DrainError", errors.As(err, &drain) && errors.Is(err, context.DeadlineExceeded))
			c.equal("time", elapsed(), time.Minute)
		}},
		{"Sleep lasts, and ends with its context", func(c claim, s *ctxshutdown.Swansong) {
			elapsed := began()
			c.isTrue("slept through", ctxshutdown.Sleep(s, time.Hour))
			c.equal("time", elapsed(), time.Hour)
			slept := make(chan bool)
			for _, ctx := range []context.Context{s, child(s), context.WithValue(s, key("k"), 1)} {
				go func() { slept <- ctxshutdown.Sleep(ctx, time.Hour) }()
			}
			go func() { slept <- !ctxshutdown.Sleep(s.Work(), time.Hour) }()
			g := s.Guard()
			time.AfterFunc(time.Minute, func() { s.Shutdown() })
			for range 3 {
				c.isTrue("woken by the stop", !<-slept)
			}
			c.equal("time", elapsed(), time.Hour+time.Minute)
			c.isTrue("on Work it lasts through the drain", !<-slept)
			c.equal("time", elapsed(), 2*time.Hour)
			g.Release()
		}},
		{"Sleep of no time asks", func(c claim, s *ctxshutdown.Swansong) {
			elapsed := began()
			for _, d := range []time.Duration{0, -1, -time.Hour} {
				c.isTrue("running", ctxshutdown.Sleep(s, d))
			}
			s.Shutdown()
			for _, d := range []time.Duration{0, -1, time.Hour} {
				c.isTrue("stopped", !ctxshutdown.Sleep(s, d))
			}
			c.equal("time", elapsed(), time.Duration(0))
		}},
		{"Work ends by itself when the last guard goes", func(c claim, s *ctxshutdown.Swansong) {
			work := s.Work()
			elapsed := began()
			s.Go(func(ctx context.Context) { ctxshutdown.Sleep(ctx, time.Second) })
			s.Shutdown()
			<-work.Done()
			c.equal("time", elapsed(), time.Second)
		}},
		{"Force after a time ends what does not listen", func(c claim, s *ctxshutdown.Swansong) {
			elapsed := began()
			s.Go(func(ctx context.Context) { <-ctx.Done() })
			done := s.Shutdown()
			time.AfterFunc(time.Minute, func() { s.Force(nil) })
			<-done.Done()
			c.equal("time", elapsed(), time.Minute)
		}},
		{"a Group", func(c claim, s *ctxshutdown.Swansong) {
			elapsed := began()
			g := ctxshutdown.NewGroup(s)
			g.SetLimit(2)
			for range 10 {
				g.Go(func(ctx context.Context) error {
					ctxshutdown.Sleep(ctx, time.Second)
					return nil
				})
			}
			c.isTrue("no error", g.Wait() == nil)
			c.equal("time", elapsed(), 5*time.Second)
			c.drains(s.Shutdown())
		}},
		{"AfterFunc", func(c claim, s *ctxshutdown.Swansong) {
			ran := make(chan time.Duration, 1)
			elapsed := began()
			context.AfterFunc(s, func() { ran <- elapsed() })
			time.Sleep(time.Second)
			s.Shutdown()
			c.equal("time", <-ran, time.Second)
		}},
		{"a deadline of the scope's own context", func(c claim, s *ctxshutdown.Swansong) {
			elapsed := began()
			sub := child(owned(c.T)(context.WithTimeout(s, time.Second)))
			g, work, done := sub.Guard(), sub.Work(), sub.Completion()
			<-sub.Done()
			c.equal("time", elapsed(), time.Second)
			c.equal("Err", sub.Err() == context.DeadlineExceeded, true)
			c.isTrue("Work lives on", work.Err() == nil)
			c.sees(s, ctxshutdown.Running, 1)
			c.sees(sub, ctxshutdown.ShuttingDown, 1)
			g.Release()
			<-done.Done()
			<-work.Done()
			c.equal("time", elapsed(), time.Second)
		}},
		{"a deadline before a Shutdown that nobody waited for", func(c claim, s *ctxshutdown.Swansong) {
			ctx := owned(c.T)(context.WithTimeoutCause(s, time.Second, errLate))
			for _, sub := range []*ctxshutdown.Swansong{child(ctx), child(child(ctx)), child(request{ctx, "r"})} {
				time.Sleep(time.Minute)
				sub.ShutdownCause(errCause)
				c.isTrue("the deadline ended it", sub.Err() == context.DeadlineExceeded && context.Cause(sub) == errLate)
			}
		}},
	} {
		t.Run(flow.name, func(t *testing.T) {
			for _, k := range kinds {
				t.Run(k.name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { flow.run(claim{t, "in a bubble"}, k.make(t.Context())) })
				})
			}
		})
	}
}

// A root that a bubble forgot, in every state and traced too, is collected outside of it. Whatever runs then runs
// outside, where touching a channel of the bubble is fatal.
func TestBubble_ForgottenRootsHarmNobody(t *testing.T) {
	reports := make(lines, 1000)
	logger := slog.New(slog.NewTextHandler(reports, nil))
	trace := []ctxshutdown.Option{ctxshutdown.WithTrace(), ctxshutdown.WithLogger(logger), ctxshutdown.WithName("forgotten")}
	for name, use := range map[string]func(s *ctxshutdown.Swansong){
		"untouched":   func(*ctxshutdown.Swansong) {},
		"waited on":   func(s *ctxshutdown.Swansong) { s.Done(); s.Completion().Done(); s.Work().Done() },
		"with a tree": func(s *ctxshutdown.Swansong) { child(child(s)).Guard(); child(s).Done(); child(s.Work()).Done() },
		"with a guard": func(s *ctxshutdown.Swansong) {
			s.Guard()
			context.AfterFunc(s, func() {})
			s.Completion()
		},
		"stopped":          func(s *ctxshutdown.Swansong) { s.Done(); s.Shutdown() },
		"stopped, guarded": func(s *ctxshutdown.Swansong) { s.Guard(); s.Work().Done(); s.Shutdown().Done() },
		"forced":           func(s *ctxshutdown.Swansong) { s.Guard(); s.Work().Done(); s.Force(nil).Done() },
	} {
		t.Run(name, func(t *testing.T) {
			for range 10 {
				synctest.Test(t, func(t *testing.T) {
					use(ctxshutdown.New(context.Background()))
					use(ctxshutdown.New(context.Background(), trace...))
					use(child(t.Context(), trace...))
				})
			}
			runtime.GC()
			runtime.GC()
		})
	}
	reports.await(claim{t, "in a bubble"})
}

// meddler is a context that calls back into the scopes of its own tree from every method, once each time.
type meddler struct {
	context.Context
	meddle *func()
	inside *atomic.Bool
}

func (m meddler) call() {
	if f := *m.meddle; f != nil && m.inside.CompareAndSwap(false, true) {
		defer m.inside.Store(false)
		f()
	}
}

func (m meddler) Deadline() (time.Time, bool) { m.call(); return m.Context.Deadline() }
func (m meddler) Done() <-chan struct{}       { m.call(); return m.Context.Done() }
func (m meddler) Err() error                  { m.call(); return m.Context.Err() }
func (m meddler) Value(key any) any           { m.call(); return m.Context.Value(key) }

// soon ends the program, with all stacks, where f is stuck: a callback that waits for a lock that its caller holds.
func soon(f func()) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		f()
	}()
	select {
	case <-over:
	case <-time.After(10 * time.Second):
		stacks := make([]byte, 1<<20)
		panic(fmt.Sprintf("stuck:\n%s", stacks[:runtime.Stack(stacks, true)]))
	}
}

func TestLocks_ContextsMayCallBack(t *testing.T) {
	for _, meddle := range []struct {
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
			t.Run(act.name+" calling "+meddle.name, func(t *testing.T) {
				root := ctxshutdown.New(t.Context())
				var f func()
				m := meddler{root, &f, new(atomic.Bool)}
				s := child(m)
				f = func() { meddle.with(root, s) }
				soon(func() {
					act.on(s)
					f = nil
					root.Shutdown()
				})
			})
		}
	}
}

func TestLocks_AfterFuncMayStopTheTree(t *testing.T) {
	for range 200 {
		root := ctxshutdown.New(t.Context())
		a := child(root)
		b := child(a)
		kids := []*ctxshutdown.Swansong{root, a, b, child(b.Work()), child(root.Work())}
		for _, s := range kids {
			s.Work().Done()
			s.Completion().Done()
		}
		soon(func() {
			var told sync.WaitGroup
			for i, s := range kids {
				told.Add(1)
				context.AfterFunc(s, func() {
					defer told.Done()
					s.Guard().Release()
					for _, k := range kids {
						k.Shutdown()
					}
					kids[(i+1)%len(kids)].Force(nil)
				})
			}
			root.Shutdown()
			told.Wait()
		})
		for i, s := range kids {
			if s.State() != ctxshutdown.Complete {
				t.Fatalf("scope %d is %v", i, s.State())
			}
		}
	}
}

// The scope undoes an AfterFunc of its own when it is stopped; here that happens while the callbacks run.
func TestLocks_StoppedFromTwoSidesAtOnce(t *testing.T) {
	soon(func() {
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
