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

func TestGroup_Wait(t *testing.T) {
	ok := func(context.Context) error { return nil }
	fail := func(context.Context) error { return errCause }
	obey := func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
	for _, test := range []struct {
		name      string
		functions []func(context.Context) error
		stop      error // what the scope above is stopped with, if it is
		err       error
		cause     error
	}{
		{"no functions", nil, nil, nil, ctxshutdown.ErrShutdown},
		{"no error", []func(context.Context) error{ok, ok}, nil, nil, ctxshutdown.ErrShutdown},
		{"one error stops the others", []func(context.Context) error{obey, fail, obey}, nil, errCause, errCause},
		{"stopped from above, all obey", []func(context.Context) error{obey, obey}, errLate, errLate, errLate},
		{"stopped from above, none minds", []func(context.Context) error{ok}, errLate, nil, errLate},
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
						t.Error("Go refuses")
					}
				}
				synctest.Wait()
				if test.stop != nil {
					above.ShutdownCause(test.stop)
				}
				for range 2 { // the answer stays the same
					if err := g.Wait(); err != test.err {
						t.Errorf("Wait: %v, want %v", err, test.err)
					}
				}
				if diff := cmp.Diff(end{context.Canceled, test.cause}, endOf(scope), sameErrors); diff != "" {
					t.Errorf("the group's scope after Wait (-want +got):\n%s", diff)
				}
				if scope.State() != ctxshutdown.Complete || above.GuardCount() != 0 || (above.Err() != nil) != (test.stop != nil) {
					t.Errorf("%v, %d guards above, Err above %v", scope.State(), above.GuardCount(), above.Err())
				}
				if g.Go(ok) || g.TryGo(ok) {
					t.Error("it runs functions after Wait")
				}
			})
		})
	}
}

func TestGroup_GuardsItsFunctions(t *testing.T) {
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
		t.Errorf("%q, want %q", got, want)
	}
	if !g.TryGo(func(ctx context.Context) error { return ctx.Err() }) {
		t.Error("a group on Work refuses during the drain")
	}
	close(goOn)
	if err := g.Wait(); err != nil {
		t.Errorf("a group on Work is stopped by Shutdown: %v", err)
	}
	<-done.Done()
}

// Two functions fail at once: what Wait returns and the cause of the scope are the error of the same one.
func TestGroup_ErrorAndCauseAreDecidedTogether(t *testing.T) {
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

// errUncomparable is an error whose values cannot be compared.
type errUncomparable []string

func (errUncomparable) Error() string { return "several" }

func TestGroup_AnyError(t *testing.T) {
	g := ctxshutdown.NewGroup(t.Context())
	g.Go(func(context.Context) error { return errUncomparable{"a"} })
	var got errUncomparable
	if err := g.Wait(); !errors.As(err, &got) {
		t.Errorf("Wait: %v", err)
	}
}

func TestGroup_SetLimit(t *testing.T) {
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
						t.Error("Go refuses")
					}
				}
				if err := g.Wait(); err != nil || int(most.Load()) != test.most {
					t.Errorf("%d at once, want %d; %v", most.Load(), test.most, err)
				}
			})
		})
	}
}

// Go, from outside of the group, while others wait: what was started has returned when Wait returns, and nothing is
// started afterwards.
func TestGroup_GoWhileOthersWait(t *testing.T) {
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

func TestGroup_WaitInTheMiddleOfAGo(t *testing.T) {
	var g *ctxshutdown.Group
	waited := false
	g = ctxshutdown.NewGroup(onErr{ctxshutdown.New(t.Context()), new(atomic.Int32), func(call int32, ctx context.Context) error {
		if call == 1 { // Go has a guard and asks whether the scope is running
			waited = true
			g.Wait()
		}
		return ctx.Err()
	}})
	if g.Go(func(context.Context) error { return nil }) || !waited {
		t.Errorf("Wait has returned: %v, and Go starts something after it", waited)
	}
}

// With an error, with Goexit: the place becomes free.
func TestGroup_APlaceIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := ctxshutdown.NewGroup(t.Context())
		g.SetLimit(1)
		for i, f := range []func(context.Context) error{
			func(context.Context) error { return nil },
			func(context.Context) error { runtime.Goexit(); return errCause },
			func(context.Context) error { return errCause },
		} {
			if !g.Go(f) {
				t.Errorf("Go %d refuses", i)
			}
		}
		if err := g.Wait(); err != errCause {
			t.Errorf("Wait: %v", err)
		}
	})
}

func TestGroup_TryGoDoesNotWait(t *testing.T) {
	g := ctxshutdown.NewGroup(t.Context())
	g.SetLimit(1)
	goOn := make(chan struct{})
	ran := false
	first := g.TryGo(func(context.Context) error { <-goOn; return nil })
	second := g.TryGo(func(context.Context) error { ran = true; return nil })
	close(goOn)
	if err := g.Wait(); !first || second || ran || err != nil {
		t.Errorf("TryGo: %v, then %v; ran %v, error %v", first, second, ran, err)
	}
}

func TestGroup_LimitOfZeroRunsNone(t *testing.T) {
	for name, end := range map[string]func(s *ctxshutdown.Swansong, g *ctxshutdown.Group){
		"until the stop": func(s *ctxshutdown.Swansong, _ *ctxshutdown.Group) { s.Shutdown() },
		"until a Wait":   func(_ *ctxshutdown.Swansong, g *ctxshutdown.Group) { g.Wait() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := ctxshutdown.New(t.Context())
				g := ctxshutdown.NewGroup(s)
				g.SetLimit(0)
				f := func(context.Context) error { t.Error("it runs"); return nil }
				if g.TryGo(f) {
					t.Error("TryGo says that it runs")
				}
				went := make(chan bool)
				go func() { went <- g.Go(f) }()
				synctest.Wait() // it waits for a place
				end(s, g)
				if <-went {
					t.Error("Go says that it runs")
				}
				if err := g.Wait(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A Go that waits for a place is woken by whatever stops the scope, and refuses.
func TestGroup_StopWhileWaitingForAPlace(t *testing.T) {
	for name, stop := range map[string]func(above *ctxshutdown.Swansong, fail chan<- error){
		"from above":  func(above *ctxshutdown.Swansong, _ chan<- error) { above.Shutdown() },
		"by an error": func(_ *ctxshutdown.Swansong, fail chan<- error) { fail <- errCause },
		"by the time": func(*ctxshutdown.Swansong, chan<- error) { pass(time.Hour) },
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
				went := make(chan bool)
				go func() {
					went <- g.Go(func(context.Context) error { t.Error("it runs"); return nil })
				}()
				synctest.Wait()
				stop(above, fail)
				if <-went {
					t.Error("Go says that it runs")
				}
				close(fail)
				g.Wait()
			})
		})
	}
}

func TestGroup_SetLimitWhileRunning(t *testing.T) {
	for _, limit := range []int{3, -1} {
		t.Run(fmt.Sprintf("with a limit of %d before", limit), func(t *testing.T) {
			g := ctxshutdown.NewGroup(t.Context())
			g.SetLimit(limit)
			goOn := make(chan struct{})
			g.Go(func(context.Context) error { <-goOn; return nil })
			const want = "ctxshutdown: SetLimit of a Group while 1 of its functions are running"
			if got := panicOf(func() { g.SetLimit(2) }); got != want {
				t.Errorf("panic %q, want %q", got, want)
			}
			close(goOn)
			g.Wait()
		})
	}
}

func TestGo_GoexitReleasesTheGuard(t *testing.T) {
	exit := func(context.Context) { runtime.Goexit() }
	for name, start := range map[string]func(s *ctxshutdown.Swansong) bool{
		"Swansong.Go": func(s *ctxshutdown.Swansong) bool { return s.Go(exit) },
		"Go":          func(s *ctxshutdown.Swansong) bool { return ctxshutdown.Go(child(s), exit) },
		"Group.Go": func(s *ctxshutdown.Swansong) bool {
			g := ctxshutdown.NewGroup(s)
			ok := g.Go(func(ctx context.Context) error { exit(ctx); return errCause })
			if err := g.Wait(); err != nil {
				t.Errorf("Wait: %v, of a function that returned nothing", err)
			}
			return ok
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := ctxshutdown.New(t.Context())
				if !start(s) {
					t.Error("refused")
				}
				<-s.Shutdown().Done()
			})
		})
	}
}

func TestGo_GivesTheContextItPromises(t *testing.T) {
	s := ctxshutdown.New(t.Context())
	given := make(chan context.Context, 3)
	f := func(ctx context.Context) { given <- ctx }
	s.Go(f)
	if got := <-given; got != s.Work() {
		t.Errorf("Swansong.Go gives %v", got)
	}
	for _, ctx := range []context.Context{s, s.Work(), t.Context(), request{s, "r"}} {
		if ctxshutdown.Go(ctx, f); <-given != ctx {
			t.Errorf("Go on %v gives something else", ctx)
		}
	}
}
