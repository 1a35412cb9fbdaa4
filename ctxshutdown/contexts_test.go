package ctxshutdown_test

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/testkit"
	"golang.org/x/sync/errgroup"
)

// A tier is a kind of context, by what ends it.
type tier int

const (
	soft    tier = iota // the stop of the scope ends the context
	hard                // the context ends when the Work of the scope ends
	neither             // neither the stop nor the end of Work ends the context
)

// sources are functions that return contexts of a root scope: the scope itself, its Work, and
// contexts of child scopes.
var sources = []struct {
	name string
	tier tier
	of   func(root *ctxshutdown.Swansong) context.Context
}{
	{"root", soft, func(root *ctxshutdown.Swansong) context.Context { return root }},
	{"child without a context of its own", soft, func(root *ctxshutdown.Swansong) context.Context { return child(root) }},
	{"child with a context of its own", soft, func(root *ctxshutdown.Swansong) context.Context {
		s := child(root)
		s.Done()
		return s
	}},
	{"grandchild that gets its context after the stop", soft, func(root *ctxshutdown.Swansong) context.Context {
		return child(context.WithValue(child(root), key("k"), 1))
	}},
	{"Work", hard, func(root *ctxshutdown.Swansong) context.Context { return root.Work() }},
	{"Work of a derived context", hard, func(root *ctxshutdown.Swansong) context.Context {
		return ctxshutdown.Work(context.WithValue(root, key("k"), 1))
	}},
	{"child of Work", hard, func(root *ctxshutdown.Swansong) context.Context { return child(root.Work()) }},
	{"child of Work of a derived context", hard, func(root *ctxshutdown.Swansong) context.Context {
		return child(ctxshutdown.Work(context.WithValue(root, key("k"), 1)))
	}},
	{"child of WithoutCancel", neither, func(root *ctxshutdown.Swansong) context.Context { return child(context.WithoutCancel(root)) }},
}

// derivations are functions that derive a context: from the standard library, from this package,
// and from other packages.
var derivations = []struct {
	name string
	from func(t *testing.T, ctx context.Context) context.Context
}{
	{"itself", func(_ *testing.T, ctx context.Context) context.Context { return ctx }},
	{"WithCancel", func(t *testing.T, ctx context.Context) context.Context { return owned(t)(context.WithCancel(ctx)) }},
	{"WithTimeout", func(t *testing.T, ctx context.Context) context.Context {
		return owned(t)(context.WithTimeout(ctx, 24*time.Hour))
	}},
	{"WithValue", func(_ *testing.T, ctx context.Context) context.Context {
		return context.WithValue(ctx, key("other"), 1)
	}},
	{"errgroup", func(_ *testing.T, ctx context.Context) context.Context {
		_, ctx = errgroup.WithContext(ctx)
		return ctx
	}},
	{"nested scope", func(_ *testing.T, ctx context.Context) context.Context { return child(ctx) }},
	{"a root of its own", func(_ *testing.T, ctx context.Context) context.Context { return ctxshutdown.New(ctx) }},
	{"a type of the user's own", func(_ *testing.T, ctx context.Context) context.Context { return request{ctx, "r"} }},
	{"derived from a type of the user's own", func(t *testing.T, ctx context.Context) context.Context {
		return owned(t)(context.WithCancel(request{ctx, "r"}))
	}},
	{"all of them", func(t *testing.T, ctx context.Context) context.Context {
		ctx = owned(t)(context.WithCancel(request{context.WithValue(ctx, key("other"), 1), "r"}))
		return child(owned(t)(context.WithTimeout(child(ctx), 24*time.Hour)))
	}},
}

// request is a context type that a user of the package could write.
type request struct {
	context.Context
	id string
}

// owned returns a function that takes the two results of a function such as context.WithCancel,
// returns the context, and cancels the context when the test ends.
func owned(t *testing.T) func(context.Context, context.CancelFunc) context.Context {
	return func(ctx context.Context, cancel context.CancelFunc) context.Context {
		t.Cleanup(cancel)
		return ctx
	}
}

// end contains the Err and the Cause of a context. Both are nil until the context ends.
type end struct{ Err, Cause error }

func endOf(ctx context.Context) end {
	if (ctx.Err() != nil) != testkit.IsClosed(ctx.Done()) {
		return end{errors.New("either Err is set or Done is closed, not both"), nil}
	}
	return end{ctx.Err(), context.Cause(ctx)}
}

var sameErrors = cmpopts.EquateErrors()

var (
	running = end{}
	drained = end{context.Canceled, ctxshutdown.ErrShutdown}
	errLate = errors.New("too late")
)

// endings are the ways to end a root scope. The parent context of the root has a deadline in an
// hour. A guard is held while the scope ends.
var endings = []struct {
	name       string
	end        func(root *ctxshutdown.Swansong, cancel context.CancelCauseFunc)
	soft, hard end
}{
	{"nothing", func(*ctxshutdown.Swansong, context.CancelCauseFunc) {}, running, running},
	{"Shutdown", func(root *ctxshutdown.Swansong, _ context.CancelCauseFunc) { root.Shutdown() }, drained, running},
	{"ShutdownCause", func(root *ctxshutdown.Swansong, _ context.CancelCauseFunc) { root.ShutdownCause(errCause) },
		end{context.Canceled, errCause}, running},
	{"ShutdownCause of nil", func(root *ctxshutdown.Swansong, _ context.CancelCauseFunc) { root.ShutdownCause(nil) }, drained, running},
	{"deadline", func(*ctxshutdown.Swansong, context.CancelCauseFunc) { pass(time.Hour) },
		end{context.DeadlineExceeded, errLate}, running},
	{"deadline, then Shutdown", func(root *ctxshutdown.Swansong, _ context.CancelCauseFunc) {
		pass(time.Hour)
		root.ShutdownCause(errCause)
	}, end{context.DeadlineExceeded, errLate}, running},
	{"Shutdown, then the deadline", func(root *ctxshutdown.Swansong, _ context.CancelCauseFunc) {
		root.ShutdownCause(errCause)
		pass(time.Hour)
	}, end{context.Canceled, errCause}, running},
	{"parent cancelled", func(_ *ctxshutdown.Swansong, cancel context.CancelCauseFunc) { cancel(errCause) },
		end{context.Canceled, errCause}, running},
	{"parent cancelled without a cause", func(_ *ctxshutdown.Swansong, cancel context.CancelCauseFunc) { cancel(nil) },
		end{context.Canceled, context.Canceled}, running},
	{"Force", func(root *ctxshutdown.Swansong, _ context.CancelCauseFunc) { root.Force(errCause) },
		end{context.Canceled, errCause}, end{context.Canceled, errCause}},
	{"Force of nil", func(root *ctxshutdown.Swansong, _ context.CancelCauseFunc) { root.Force(nil) },
		end{context.Canceled, ctxshutdown.ErrForced}, end{context.Canceled, ctxshutdown.ErrForced}},
	{"Shutdown, then Force", func(root *ctxshutdown.Swansong, _ context.CancelCauseFunc) { root.Shutdown(); root.Force(errCause) },
		drained, end{context.Canceled, errCause}},
	{"deadline, then Force", func(root *ctxshutdown.Swansong, _ context.CancelCauseFunc) {
		pass(time.Hour)
		root.Force(errCause)
	}, end{context.DeadlineExceeded, errLate}, end{context.Canceled, errCause}},
}

// pass sleeps in a bubble and then waits until all other goroutines are blocked.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestContexts_DerivedFromScopeHaveItsErrAndCause(t *testing.T) {
	for _, ending := range endings {
		t.Run(ending.name, func(t *testing.T) {
			for _, source := range sources {
				t.Run(source.name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						base, cancel := context.WithCancelCause(t.Context())
						timed, stop := context.WithTimeoutCause(base, time.Hour, errLate)
						defer stop()
						root := ctxshutdown.New(timed)
						g := root.Guard()
						derived := map[string]context.Context{}
						for _, d := range derivations {
							derived[d.name] = d.from(t, source.of(root))
						}
						check := func(when string, want ...end) {
							t.Helper()
							for name, ctx := range derived {
								if diff := cmp.Diff(append(want, running)[source.tier], endOf(ctx), sameErrors); diff != "" {
									t.Errorf("%s, %s (-want +got):\n%s", when, name, diff)
								}
							}
						}

						check("before", running, running)
						ending.end(root, cancel)
						synctest.Wait()
						check("ended", ending.soft, ending.hard)
						g.Release()
						synctest.Wait()
						hard := ending.hard
						if ending.soft != running && hard == running {
							hard = drained
						}
						check("guard released", ending.soft, hard)
					})
				})
			}
		})
	}
}

// All derived contexts have ended when Shutdown or Force returns. So the test checks them at once,
// without waiting.
func TestContexts_EndBeforeShutdownReturns(t *testing.T) {
	for _, source := range sources {
		for _, d := range derivations {
			t.Run(source.name+", "+d.name, func(t *testing.T) {
				root := ctxshutdown.New(t.Context())
				defer root.Guard().Release()
				ctx := d.from(t, source.of(root))
				root.ShutdownCause(errCause)
				want := []end{soft: {context.Canceled, errCause}, hard: running, neither: running}
				if diff := cmp.Diff(want[source.tier], endOf(ctx), sameErrors); diff != "" {
					t.Errorf("after Shutdown (-want +got):\n%s", diff)
				}
				root.Force(errLate)
				want[hard] = end{context.Canceled, errLate}
				if diff := cmp.Diff(want[source.tier], endOf(ctx), sameErrors); diff != "" {
					t.Errorf("after Force (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestContexts_RunAfterFuncAtTheirEnd(t *testing.T) {
	for _, source := range sources {
		t.Run(source.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				root := ctxshutdown.New(t.Context())
				g := root.Guard()
				ctx := source.of(root)
				ran := make([]tier, 0, 1)
				stopAfterFunc := context.AfterFunc(ctx, func() { t.Error("the AfterFunc runs although it was stopped") })
				context.AfterFunc(ctx, func() { ran = append(ran, source.tier) })
				synctest.Wait()
				if !stopAfterFunc() || stopAfterFunc() {
					t.Error("stop of an AfterFunc does not return true and then false")
				}

				var want []tier
				for now, do := range []func(){soft: func() { root.Shutdown() }, hard: g.Release} {
					do()
					synctest.Wait()
					if source.tier == tier(now) {
						want = append(want, source.tier)
					}
					if diff := cmp.Diff(want, ran, cmpopts.EquateEmpty()); diff != "" {
						t.Errorf("after the end of tier %d (-want +got):\n%s", now, diff)
					}
				}
			})
		})
	}
}

func TestContexts_WithoutCancelOfScopeNeverEnds(t *testing.T) {
	for _, source := range sources {
		t.Run(source.name, func(t *testing.T) {
			root := ctxshutdown.New(context.WithValue(t.Context(), key("k"), "v"))
			ctx := context.WithoutCancel(source.of(root))
			root.Force(errCause)
			if ctx.Err() != nil || ctx.Done() != nil || context.Cause(ctx) != nil {
				t.Errorf("Err %v, Cause %v, want none", ctx.Err(), context.Cause(ctx))
			}
			if _, ok := ctxshutdown.FromContext(ctx); !ok {
				t.Error("FromContext finds no scope")
			}
			if g, ok := ctxshutdown.Acquire(ctx); !ok || root.GuardCount() != 1 {
				t.Errorf("Acquire: %v, %d guards in the tree, want true and 1, because the context has not ended", ok, root.GuardCount())
			} else {
				g.Release()
			}
		})
	}
}

func TestContexts_StopPassesThroughSignalNotifyContext(t *testing.T) {
	for _, source := range sources {
		t.Run(source.name, func(t *testing.T) {
			root := ctxshutdown.New(t.Context())
			defer root.Guard().Release()
			ctx, stop := signal.NotifyContext(source.of(root), os.Interrupt)
			defer stop()
			s, cancel := ctxshutdown.WithCancel(ctx)
			defer cancel()
			root.ShutdownCause(errCause)
			want := []end{soft: {context.Canceled, errCause}, hard: running, neither: running}[source.tier]
			if diff := cmp.Diff([]end{want, want}, []end{endOf(ctx), endOf(s)}, sameErrors); diff != "" {
				t.Errorf("after Shutdown (-want +got):\n%s", diff)
			}
			stop()
			if endOf(s) == running || root.GuardCount() != 1 {
				t.Error("the scope does not end with the context of signal.NotifyContext")
			}
		})
	}
	t.Run("as the parent of a root", func(t *testing.T) {
		ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt)
		s := ctxshutdown.New(ctx)
		stop()
		if s.Err() != context.Canceled || s.State() != ctxshutdown.Complete {
			t.Errorf("Err %v, %v; want a stopped scope", s.Err(), s.State())
		}
	})
}

// The context of an errgroup derives from a scope, and another scope derives from that context. An
// error of a function of the errgroup ends the context and the scope below it, with the error as
// the cause. It does not end the scope above.
func TestContexts_ErrgroupErrorStopsScopeBelowItButNotAbove(t *testing.T) {
	root := ctxshutdown.New(t.Context())
	g, ctx := errgroup.WithContext(root)
	below := child(ctx)
	g.Go(func() error { return errCause })
	g.Go(func() error { <-below.Done(); return below.Err() })
	if err := g.Wait(); err != errCause {
		t.Errorf("Wait: %v, want the first error", err)
	}
	want := []end{{context.Canceled, errCause}, {context.Canceled, errCause}, running}
	if diff := cmp.Diff(want, []end{endOf(ctx), endOf(below), endOf(root)}, sameErrors); diff != "" {
		t.Errorf("group, scope below, scope above (-want +got):\n%s", diff)
	}
}

func TestContexts_StartNoGoroutines(t *testing.T) {
	for _, source := range sources {
		t.Run(source.name, func(t *testing.T) {
			for _, d := range derivations {
				testGoroutines(t, d.name, func(t *testing.T, root *ctxshutdown.Swansong) {
					ctx := d.from(t, source.of(root))
					ctx.Done()
					if s, ok := ctxshutdown.FromContext(ctx); ok {
						s.Work()
						s.Completion()
					}
				})
			}
		})
	}
	for name, stop := range map[string]func(s *ctxshutdown.Swansong){
		"before its context is used": func(s *ctxshutdown.Swansong) { s.Shutdown() },
		"after its context is used":  func(s *ctxshutdown.Swansong) { s.Done(); s.Shutdown() },
		"with a cause":               func(s *ctxshutdown.Swansong) { s.ShutdownCause(errCause) },
		"by Force":                   func(s *ctxshutdown.Swansong) { s.Force(nil) },
	} {
		testGoroutines(t, "from a child stopped "+name, func(t *testing.T, root *ctxshutdown.Swansong) {
			s := child(root)
			stop(s)
			child(s).Done()
			child(owned(t)(context.WithCancel(s))).Done()
			child(s.Work()).Done()
		})
	}
}

// testGoroutines calls derive a hundred times and checks that no goroutine has been started.
func testGoroutines(t *testing.T, name string, derive func(t *testing.T, root *ctxshutdown.Swansong)) {
	synctest.Test(t, func(t *testing.T) {
		root := ctxshutdown.New(t.Context())
		before := runtime.NumGoroutine()
		for range 100 {
			derive(t, root)
		}
		grown := runtime.NumGoroutine() - before
		// During a garbage collection, the runtime also counts goroutines that have ended. So
		// repeat the count.
		for i := 0; i < 100 && grown > 0; i++ {
			runtime.GC()
			grown = runtime.NumGoroutine() - before
		}
		if grown > 0 {
			t.Errorf("%s: %d more goroutines after 100 derivations", name, grown)
		}
	})
}

func TestWork_HasNoDeadlineAlthoughParentContextHasOne(t *testing.T) {
	at := time.Now().Add(time.Hour)
	for _, source := range sources {
		for _, stopped := range []bool{false, true} {
			ctx, cancel := context.WithDeadline(t.Context(), at)
			root := ctxshutdown.New(ctx)
			got := source.of(root)
			if stopped {
				root.Shutdown()
			}
			deadline, ok := got.Deadline()
			if want := source.tier == soft; ok != want || want && !deadline.Equal(at) {
				t.Errorf("Deadline of %s, stopped %v: %v, %v", source.name, stopped, deadline, ok)
			}
			cancel()
		}
	}
}

func TestContexts_InheritValues(t *testing.T) {
	type other string // other("x") is another key than key("x")
	for _, source := range sources {
		t.Run(source.name, func(t *testing.T) {
			root := ctxshutdown.New(context.WithValue(context.WithValue(t.Context(), key("above"), "above"), key("masked"), "old"))
			ctx := source.of(root)
			masked := context.WithValue(ctx, key("masked"), "new")
			inner, underived := child(masked), child(masked)
			forms := map[string]context.Context{
				"derived": masked, "child": inner, "underived child": underived, "Work of the child": inner.Work(), "Work": ctxshutdown.Work(masked),
				"standard": owned(t)(context.WithCancel(inner)), "child of Work": child(inner.Work()),
			}
			checkValues := func(when string) {
				t.Helper()
				for name, ctx := range forms {
					want := []any{"above", "new", nil, nil}
					got := []any{ctx.Value(key("above")), ctx.Value(key("masked")), ctx.Value(key("none")), ctx.Value(other("above"))}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("%s, %s (-want +got):\n%s", when, name, diff)
					}
				}
				if got := ctx.Value(key("masked")); got != "old" {
					t.Errorf("%s: the context above has %v, want the old value", when, got)
				}
			}
			checkValues("running")
			underived.Shutdown() // the scope is stopped before it has a standard context of its own
			checkValues("one child stopped")
			root.Shutdown()
			checkValues("all stopped")
			root.Force(nil)
			checkValues("forced")
		})
	}
}

func TestFromContext_ReturnsNearestScope(t *testing.T) {
	for _, d := range derivations[:9] {
		t.Run(d.name, func(t *testing.T) {
			if _, ok := ctxshutdown.FromContext(context.WithValue(t.Context(), key("k"), 1)); ok {
				t.Error("FromContext finds a scope in a context without one")
			}
			outer := ctxshutdown.New(t.Context())
			inner := child(outer)
			inner.ShutdownCause(errCause)
			for _, ctx := range []context.Context{inner, inner.Work(), ctxshutdown.Work(inner), context.WithoutCancel(inner), request{inner, "r"}} {
				got, ok := ctxshutdown.FromContext(ctx)
				deep, _ := ctxshutdown.FromContext(d.from(t, ctx))
				own := d.name == "nested scope" || d.name == "a root of its own"
				if !ok || got != inner || (deep != inner) != own {
					t.Errorf("from %T: %v, below %v", ctx, got, deep)
				}
			}
		})
	}
}
