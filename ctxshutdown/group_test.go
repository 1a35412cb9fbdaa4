package ctxshutdown_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/ctxshutdown"
)

func TestGroup_WaitReturnsFirstError(t *testing.T) {
	ok := func(context.Context) error { return nil }
	fail := func(context.Context) error { return errCause }
	obey := func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
	for _, test := range []struct {
		name      string
		functions []func(context.Context) error
		stop      error // if not nil, the parent scope is stopped with this cause
		err       error
		cause     error
	}{
		{"no functions", nil, nil, nil, ctxshutdown.ErrShutdown},
		{"no error", []func(context.Context) error{ok, ok}, nil, nil, ctxshutdown.ErrShutdown},
		{"one error stops the others", []func(context.Context) error{obey, fail, obey}, nil, errCause, errCause},
		{"stopped from above, functions return its error", []func(context.Context) error{obey, obey}, errLate, errLate, errLate},
		{"stopped from above, functions return nil", []func(context.Context) error{ok}, errLate, nil, errLate},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				above := ctxshutdown.New(t.Context())
				g := ctxshutdown.NewGroup(above, ctxshutdown.WithName("group"))
				var scope *ctxshutdown.Swansong
				g.Go(func(ctx context.Context) error {
					scope, _ = ctxshutdown.FromContext(ctx)
					return nil
				})
				for _, f := range test.functions {
					if !g.Go(f) && test.err == nil {
						t.Error("Go returns false")
					}
				}
				synctest.Wait()
				if test.stop != nil {
					above.ShutdownCause(test.stop)
				}
				for range 2 { // the second Wait returns the same error
					if err := g.Wait(); err != test.err {
						t.Errorf("Wait: %v, want %v", err, test.err)
					}
				}
				if diff := cmp.Diff(end{context.Canceled, test.cause}, endOf(scope), sameErrors); diff != "" {
					t.Errorf("the group's scope after Wait (-want +got):\n%s", diff)
				}
				if scope.State() != ctxshutdown.Complete || above.GuardCount() != 0 || (above.Err() != nil) != (test.stop != nil) {
					t.Errorf("state %v, %d guards above, Err above %v", scope.State(), above.GuardCount(), above.Err())
				}
				if g.Go(ok) || g.TryGo(ok) {
					t.Error("Go or TryGo starts a function after Wait")
				}
			})
		})
	}
}

func TestGroup_FunctionsHoldGuards(t *testing.T) {
	above := ctxshutdown.New(t.Context(), ctxshutdown.WithName("app"))
	g := ctxshutdown.NewGroup(above.Work(), ctxshutdown.WithName("jobs"))
	working, goOn := make(chan struct{}), make(chan struct{})
	g.Go(func(ctx context.Context) error {
		close(working)
		<-goOn
		return ctx.Err()
	})
	<-working
	done := above.Shutdown()
	if got, want := above.GuardReport().String(), "1 guard: app/jobs ×1"; got != want {
		t.Errorf("report during the drain %q, want %q", got, want)
	}
	if !g.TryGo(func(ctx context.Context) error { return ctx.Err() }) {
		t.Error("TryGo of a group on Work returns false during the drain")
	}
	close(goOn)
	if err := g.Wait(); err != nil {
		t.Errorf("a group on Work is stopped by Shutdown: %v", err)
	}
	<-done.Done()
}

// If two functions of a group fail at the same time, Wait returns the error that is also the cause
// of the scope.
func TestGroup_WaitReturnsCauseOfScopeIfTwoFunctionsFail(t *testing.T) {
	for range 1000 {
		g := ctxshutdown.NewGroup(context.Background())
		var ready sync.WaitGroup
		var scope context.Context
		ready.Add(2)
		for i := range 2 {
			g.Go(func(ctx context.Context) error {
				if i == 0 {
					scope = ctx
				}
				ready.Done()
				ready.Wait()
				return fmt.Errorf("error %d", i)
			})
		}
		if err := g.Wait(); err == nil || err != context.Cause(scope) {
			t.Fatalf("Wait returns %v, the cause is %v", err, context.Cause(scope))
		}
	}
}

// errUncomparable is an error type whose values cannot be compared with ==.
type errUncomparable []string

func (errUncomparable) Error() string { return "several" }

func TestGroup_AcceptsIncomparableError(t *testing.T) {
	g := ctxshutdown.NewGroup(t.Context())
	g.Go(func(context.Context) error { return errUncomparable{"a"} })
	var got errUncomparable
	if err := g.Wait(); !errors.As(err, &got) {
		t.Errorf("Wait: %v", err)
	}
}

func TestGroup_LimitsConcurrentFunctions(t *testing.T) {
	for _, test := range []struct{ limit, tasks, most int }{{1, 20, 1}, {3, 20, 3}, {100, 20, 20}, {-1, 20, 20}} {
		t.Run(fmt.Sprint(test.limit), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := ctxshutdown.NewGroup(t.Context())
				g.SetLimit(0)
				g.SetLimit(test.limit)
				var running, most atomic.Int32
				for range test.tasks {
					if !g.Go(func(ctx context.Context) error {
						now := running.Add(1)
						for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
						}
						ctxshutdown.Sleep(ctx, time.Second)
						running.Add(-1)
						return nil
					}) {
						t.Error("Go returns false")
					}
				}
				if err := g.Wait(); err != nil || int(most.Load()) != test.most {
					t.Errorf("%d functions ran at the same time, want %d; Wait: %v", most.Load(), test.most, err)
				}
			})
		})
	}
}

// Go is called concurrently with Wait. When Wait returns, every started function has returned, and
// no function is started afterwards.
func TestGroup_StartsNoFunctionAfterWait(t *testing.T) {
	for range 3000 {
		g := ctxshutdown.NewGroup(context.Background())
		var active, waited atomic.Int32
		f := func(context.Context) error {
			defer active.Add(-1)
			if active.Add(1); waited.Load() != 0 {
				t.Error("a function runs after Wait")
			}
			return nil
		}
		g.Go(f)
		var racing sync.WaitGroup
		racing.Go(func() {
			for g.Go(f) {
				runtime.Gosched()
			}
		})
		for range 2 {
			racing.Go(func() {
				err := g.Wait()
				waited.Store(1)
				if n := active.Load(); n != 0 || err != nil {
					t.Errorf("%d functions run after Wait, which returned %v", n, err)
				}
			})
		}
		racing.Wait()
	}
}

func TestGroup_GoReturnsFalseIfWaitReturnsDuringCall(t *testing.T) {
	var g *ctxshutdown.Group
	waited := false
	g = ctxshutdown.NewGroup(onErr{ctxshutdown.New(t.Context()), new(atomic.Int32), func(call int32, ctx context.Context) error {
		// The first call of Err is that of Go: it has counted a guard, and checks whether the scope
		// is stopped.
		if call == 1 {
			waited = true
			g.Wait()
		}
		return ctx.Err()
	}})
	if g.Go(func(context.Context) error { return nil }) || !waited {
		t.Errorf("Wait has returned: %v, and Go has started a function after it", waited)
	}
}

// After a function has failed or called runtime.Goexit, it no longer counts towards the limit.
func TestGroup_GoexitFreesPlaceInLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := ctxshutdown.NewGroup(t.Context())
		g.SetLimit(1)
		for i, f := range []func(context.Context) error{
			func(context.Context) error { return nil },
			func(context.Context) error { runtime.Goexit(); return errCause },
			func(context.Context) error { return errCause },
		} {
			if !g.Go(f) {
				t.Errorf("Go %d returns false", i)
			}
		}
		if err := g.Wait(); err != errCause {
			t.Errorf("Wait: %v", err)
		}
	})
}

func TestGroup_TryGoDoesNotBlock(t *testing.T) {
	g := ctxshutdown.NewGroup(t.Context())
	g.SetLimit(1)
	goOn := make(chan struct{})
	ran := false
	first := g.TryGo(func(context.Context) error { <-goOn; return nil })
	second := g.TryGo(func(context.Context) error { ran = true; return nil })
	close(goOn)
	if err := g.Wait(); !first || second || ran || err != nil {
		t.Errorf("TryGo returns %v, then %v; the second function ran: %v; Wait: %v", first, second, ran, err)
	}
}

func TestGroup_LimitOfZeroStartsNoFunction(t *testing.T) {
	for name, end := range map[string]func(s *ctxshutdown.Swansong, g *ctxshutdown.Group){
		"until the stop": func(s *ctxshutdown.Swansong, _ *ctxshutdown.Group) { s.Shutdown() },
		"until a Wait":   func(_ *ctxshutdown.Swansong, g *ctxshutdown.Group) { g.Wait() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := ctxshutdown.New(t.Context())
				g := ctxshutdown.NewGroup(s)
				g.SetLimit(0)
				f := func(context.Context) error { t.Error("the function runs"); return nil }
				if g.TryGo(f) {
					t.Error("TryGo returns true")
				}
				started := make(chan bool)
				go func() { started <- g.Go(f) }()
				synctest.Wait() // now Go is blocked by the limit
				end(s, g)
				if <-started {
					t.Error("Go returns true")
				}
				if err := g.Wait(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A call of Go that is blocked by the limit returns false when the scope is stopped.
func TestGroup_StopWakesBlockedGo(t *testing.T) {
	for name, stop := range map[string]func(above *ctxshutdown.Swansong, fail chan<- error){
		"from above":    func(above *ctxshutdown.Swansong, _ chan<- error) { above.Shutdown() },
		"by an error":   func(_ *ctxshutdown.Swansong, fail chan<- error) { fail <- errCause },
		"by a deadline": func(*ctxshutdown.Swansong, chan<- error) { pass(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				above := child(owned(t)(context.WithTimeout(ctxshutdown.New(t.Context()), time.Hour)))
				g := ctxshutdown.NewGroup(above)
				g.SetLimit(2)
				fail := make(chan error)
				for range 2 {
					g.Go(func(context.Context) error { return <-fail })
				}
				started := make(chan bool)
				go func() {
					started <- g.Go(func(context.Context) error { t.Error("the function runs"); return nil })
				}()
				synctest.Wait()
				stop(above, fail)
				if <-started {
					t.Error("Go returns true")
				}
				close(fail)
				g.Wait()
			})
		})
	}
}

func TestGroup_SetLimitPanicsWhileFunctionsRun(t *testing.T) {
	for _, limit := range []int{3, -1} {
		t.Run(fmt.Sprintf("with a limit of %d before", limit), func(t *testing.T) {
			g := ctxshutdown.NewGroup(t.Context())
			g.SetLimit(limit)
			goOn := make(chan struct{})
			g.Go(func(context.Context) error { <-goOn; return nil })
			const want = "ctxshutdown: SetLimit called while functions of the Group are running (1); call SetLimit before Go"
			if got := panicOf(func() { g.SetLimit(2) }); got != want {
				t.Errorf("panic %q, want %q", got, want)
			}
			close(goOn)
			g.Wait()
		})
	}
}

func TestGo_GoexitReleasesGuard(t *testing.T) {
	exit := func(context.Context) { runtime.Goexit() }
	goInGroup := func(g *ctxshutdown.Group) bool {
		ok := g.Go(func(ctx context.Context) error { exit(ctx); return errCause })
		if err := g.Wait(); err != nil {
			t.Errorf("Wait: %v, want nil for a function that called Goexit", err)
		}
		return ok
	}
	for name, start := range map[string]func(s *ctxshutdown.Swansong) bool{
		"Swansong.Go": func(s *ctxshutdown.Swansong) bool { return s.Go(exit) },
		"Go":          func(s *ctxshutdown.Swansong) bool { return ctxshutdown.Go(child(s), exit) },
		"Group.Go":    func(s *ctxshutdown.Swansong) bool { return goInGroup(ctxshutdown.NewGroup(s)) },
		"Group.Go with a limit": func(s *ctxshutdown.Swansong) bool {
			g := ctxshutdown.NewGroup(s)
			g.SetLimit(1)
			return goInGroup(g)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := ctxshutdown.New(t.Context())
				if !start(s) {
					t.Error("Go returns false")
				}
				<-s.Shutdown().Done()
			})
		})
	}
}

func TestGo_PassesContextToFunction(t *testing.T) {
	s := ctxshutdown.New(t.Context())
	given := make(chan context.Context, 3)
	f := func(ctx context.Context) { given <- ctx }
	s.Go(f)
	if got := <-given; got != s.Work() {
		t.Errorf("Swansong.Go calls the function with %v, want Work", got)
	}
	for _, ctx := range []context.Context{s, s.Work(), t.Context(), request{s, "r"}} {
		if ctxshutdown.Go(ctx, f); <-given != ctx {
			t.Errorf("Go calls the function with another context than %v", ctx)
		}
	}
}
