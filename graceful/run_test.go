package graceful_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/eventloop"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/internal/testkit"
)

// In the tests of this file, the context of Run ends after one second, which begins the stop.

func TestRun_PhasesBeginAtConfiguredTimes(t *testing.T) {
	const s = time.Second
	type paths = []step
	duck := graceful.WithLameDuck(5 * s)
	for _, test := range []struct {
		name string
		f    func(r *ctxshutdown.Swansong) error
		opts []graceful.Option
		want paths
		code int
	}{
		{"nothing to drain", untilStopped, nil,
			paths{{graceful.Serving, 0}, {graceful.Soft, s}, {graceful.Exit, s}}, 0},
		{"nothing to drain, but a lame duck", untilStopped, []graceful.Option{duck},
			paths{{graceful.Serving, 0}, {graceful.LameDuck, s}, {graceful.Soft, 6 * s}, {graceful.Exit, 6 * s}}, 0},
		{"drained in time", func(r *ctxshutdown.Swansong) error { hold(r, "jobs", r, 9*s); return untilStopped(r) }, nil,
			paths{{graceful.Serving, 0}, {graceful.Soft, s}, {graceful.Exit, 10 * s}}, 0},
		{"drained after force", func(r *ctxshutdown.Swansong) error { hold(r, "jobs", r.Work(), s); return untilStopped(r) }, nil,
			paths{{graceful.Serving, 0}, {graceful.Soft, s}, {graceful.Hard, 11 * s}, {graceful.Exit, 12 * s}}, 2},
		{"abandoned", func(r *ctxshutdown.Swansong) error { hold(r, "jobs", r, time.Minute); return untilStopped(r) }, nil,
			paths{{graceful.Serving, 0}, {graceful.Soft, s}, {graceful.Hard, 11 * s}, {graceful.Exit, 13 * s}}, 3},
		{"f does not return", func(r *ctxshutdown.Swansong) error { time.Sleep(time.Minute); return nil }, nil,
			paths{{graceful.Serving, 0}, {graceful.Soft, s}, {graceful.Hard, 11 * s}, {graceful.Exit, 13 * s}}, 3},
		{"other times", func(r *ctxshutdown.Swansong) error { hold(r, "jobs", r, time.Minute); return untilStopped(r) },
			[]graceful.Option{duck, graceful.WithSoft(3 * s), graceful.WithHard(s / 2)},
			paths{{graceful.Serving, 0}, {graceful.LameDuck, s}, {graceful.Soft, 6 * s}, {graceful.Hard, 9 * s}, {graceful.Exit, 9*s + s/2}}, 3},
		{"f returns in the lame duck", func(r *ctxshutdown.Swansong) error { time.Sleep(2 * s); return nil }, []graceful.Option{duck},
			paths{{graceful.Serving, 0}, {graceful.LameDuck, s}, {graceful.Soft, 2 * s}, {graceful.Exit, 2 * s}}, 0},
		{"f returns by itself, with work going on", func(r *ctxshutdown.Swansong) error { hold(r, "jobs", r, 3*s); return nil }, []graceful.Option{duck},
			paths{{graceful.Serving, 0}, {graceful.Soft, 0}, {graceful.Exit, 3 * s}}, 0},
		{"other code calls Shutdown", func(r *ctxshutdown.Swansong) error { hold(r, "jobs", r, 3*s); r.Shutdown(); return untilStopped(r) }, []graceful.Option{duck},
			paths{{graceful.Serving, 0}, {graceful.Soft, 0}, {graceful.Exit, 3 * s}}, 0},
		{"other code calls Force", func(r *ctxshutdown.Swansong) error {
			hold(r, "jobs", r.Work(), s)
			time.Sleep(s / 2)
			r.Force(nil)
			return nil
		}, nil, nil, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(b *testRun) {
				err := b.run(test.f, test.opts...)
				testkit.Equal(t, "exit code", graceful.ExitCode(err), test.code)
				if test.want != nil {
					testkit.Equal(t, "phases", b.path.steps, test.want)
				}
				time.Sleep(time.Hour) // wait until abandoned goroutines have ended
			})
		})
	}
}

// TestRun_ReturnsErrorsOfItsFunction tests which errors of f are failures, and what Run returns for
// them.
func TestRun_ReturnsErrorsOfItsFunction(t *testing.T) {
	full := errors.New("the disk is full")
	stubborn := func(r *ctxshutdown.Swansong) error {
		hold(r, "jobs", r, time.Minute)
		<-r.Done()
		return full
	}
	for _, test := range []struct {
		name string
		f    func(s *ctxshutdown.Swansong) error
		want string
		code int
	}{
		{"nil", untilStopped, "", 0},
		{"Err of the scope", func(s *ctxshutdown.Swansong) error { <-s.Done(); return s.Err() }, "", 0},
		{"cause of the scope", func(s *ctxshutdown.Swansong) error { <-s.Done(); return context.Cause(s) }, "", 0},
		{"an error that wraps the error of the scope", func(s *ctxshutdown.Swansong) error { <-s.Done(); return fmt.Errorf("flush: %w", s.Err()) },
			"flush: context canceled", 1},
		{"the same before the stop", func(*ctxshutdown.Swansong) error { return context.Canceled }, "context canceled", 1},
		{"an error that cannot be compared", func(s *ctxshutdown.Swansong) error { <-s.Done(); return uncomparable{"a", "b"} }, "[a b]", 1},
		{"failure", func(*ctxshutdown.Swansong) error { return full }, "the disk is full", 1},
		{"failure in the drain", func(s *ctxshutdown.Swansong) error { <-s.Done(); return full }, "the disk is full", 1},
		{"Goexit", func(*ctxshutdown.Swansong) error { runtime.Goexit(); return nil },
			"graceful: the function called runtime.Goexit", 1},
		{"failure and abandoned", stubborn,
			"graceful: abandoned (cancelled work did not return within 2s): 1 guard: jobs ×1; also: the disk is full", 3},
		{"forced", func(s *ctxshutdown.Swansong) error { <-s.Work().Done(); return nil },
			"graceful: drained after force (the drain took longer than 10s): 1 guard: main ×1", 2},
		{"cause of Work", func(s *ctxshutdown.Swansong) error { <-s.Work().Done(); return context.Cause(s.Work()) },
			"graceful: drained after force (the drain took longer than 10s): 1 guard: main ×1", 2},
		{"the error that it has forced with", func(s *ctxshutdown.Swansong) error { s.Force(full); return full },
			"graceful: drained after force (Force was called: the disk is full): 1 guard: main ×1", 2},
		{"forced by other code", func(s *ctxshutdown.Swansong) error { s.Force(full); time.Sleep(time.Second); return nil },
			"graceful: drained after force (Force was called: the disk is full): 1 guard: main ×1", 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(b *testRun) {
				err := b.run(test.f)
				testkit.Equal(t, "error", testkit.ErrorText(err), test.want)
				testkit.Equal(t, "exit code", graceful.ExitCode(err), test.code)
				if test.code > 1 {
					var drain *ctxshutdown.DrainError
					testkit.Equal(t, "it has a DrainError", errors.As(err, &drain), true)
				}
				if strings.Contains(test.want, "full") {
					testkit.Equal(t, "it unwraps to what f returned", errors.Is(err, full), true)
				}
				time.Sleep(time.Hour)
			})
		})
	}
}

type uncomparable []string

func (e uncomparable) Error() string { return fmt.Sprint([]string(e)) }

// The scope that Run passes to f has the values of Run's context, but neither its cancellation nor
// its deadline.
func TestRun_ScopeKeepsValuesButNotCancellationOfContext(t *testing.T) {
	bubble(t, func(b *testRun) {
		type key struct{}
		ctx, cancel := context.WithTimeout(context.WithValue(b.Context(), key{}, "v"), time.Second)
		defer cancel()
		err := graceful.Run(ctx, func(s *ctxshutdown.Swansong) error {
			p := process(t, s)
			testkit.Equal(t, "value", s.Value(key{}), any("v"))
			testkit.Equal(t, "value of Work", s.Work().Value(key{}), any("v"))
			_, has := s.Deadline()
			testkit.Equal(t, "deadline", has, false)
			testkit.Equal(t, "the process of a derived context", process(t, ctxshutdown.Work(s)) == p, true)
			testkit.Equal(t, "the scope of the process", p.Scope() == s, true)

			testkit.Equal(t, "ready", testkit.IsClosed(p.LameDuck()), false)
			<-p.LameDuck()
			testkit.Equal(t, "a guard in the lame duck", s.Go(func(context.Context) {}), true)
			testkit.Equal(t, "cause", testkit.ErrorText(p.Status().Cause), "context deadline exceeded")
			<-s.Done()
			testkit.Equal(t, "a guard after the stop", s.Go(func(context.Context) {}), false)
			return nil
		}, graceful.WithSignals(), graceful.WithLameDuck(time.Second))
		testkit.Equal(t, "error", testkit.ErrorText(err), "")
	})
	if _, ok := graceful.FromContext(t.Context()); ok {
		t.Error("FromContext found a process where there is none")
	}
}

// After a stop, the Work context of Run's root scope is not cancelled while the function given to
// Run still runs, even if that function holds no guard.
func TestRun_WorkContextOfRootLastsUntilFunctionReturns(t *testing.T) {
	bubble(t, func(b *testRun) {
		err := b.run(func(s *ctxshutdown.Swansong) error {
			<-s.Done()
			time.Sleep(5 * time.Second)
			return s.Work().Err()
		})
		testkit.Equal(t, "error", testkit.ErrorText(err), "")
	})
}

func TestRun_RaisesPanicOfItsFunctionAfterDrain(t *testing.T) {
	bubble(t, func(b *testRun) {
		drained := false
		defer func() {
			p, ok := recover().(*graceful.PanicError)
			if !ok {
				t.Fatalf("Run has not panicked with a PanicError")
			}
			testkit.Equal(t, "value", p.Value, any("oops"))
			testkit.Equal(t, "drained before", drained, true)
			if !bytes.Contains(p.Stack, []byte("TestRun_RaisesPanicOfItsFunctionAfterDrain")) {
				t.Errorf("the stack is missing:\n%v", p)
			}
			testkit.Equal(t, "a Run after it", testkit.ErrorText(b.run(untilStopped)), "")
		}()
		b.run(func(s *ctxshutdown.Swansong) error {
			s.Go(func(context.Context) {
				<-s.Done()
				time.Sleep(5 * time.Second)
				drained = true
			})
			panic("oops")
		})
	})
}

func TestPanicError_UnwrapReturnsErrorThatWasPanickedWith(t *testing.T) {
	testkit.Equal(t, "an error that was panicked with", errors.Is(&graceful.PanicError{Value: errEnough}, errEnough), true)
	testkit.Equal(t, "something else", errors.Unwrap(&graceful.PanicError{Value: 5}), nil)
}

func TestRun_RejectsSecondRun(t *testing.T) {
	bubble(t, func(b *testRun) {
		err := b.run(func(s *ctxshutdown.Swansong) error {
			want := "graceful: Run is already running; call it once per process, from main"
			testkit.Equal(t, "a Run in a Run", testkit.ErrorText(graceful.Run(s, func(*ctxshutdown.Swansong) error { t.Error("f was called"); return nil })), want)
			return nil
		})
		testkit.Equal(t, "error", testkit.ErrorText(err), "")
		testkit.Equal(t, "a Run after a Run", testkit.ErrorText(b.run(untilStopped)), "")
	})
}

func TestWithPreStop_RunsHooksBeforeShutdown(t *testing.T) {
	wait := func(d time.Duration) func(context.Context) error {
		return func(ctx context.Context) error {
			if !ctxshutdown.Sleep(ctx, d) {
				return context.Cause(ctx)
			}
			return nil
		}
	}
	const s = time.Second
	for _, test := range []struct {
		name    string
		hooks   map[string]func(context.Context) error
		stopped time.Duration // when the scope must be stopped, counted from the call of Run
		over    time.Duration
		want    string
	}{
		{"in parallel", map[string]func(context.Context) error{"a": wait(2 * s), "b": wait(3 * s), "c": wait(1 * s)}, 4 * s, 4 * s, ""},
		{"a hook returns when its context ends", map[string]func(context.Context) error{"slow": wait(time.Hour)}, 6 * s, 6 * s,
			`graceful: pre-stop hook "slow": the time for pre-stop hooks is over: 5s, half of the soft time`},
		{"a hook ignores its context", map[string]func(context.Context) error{"deaf": func(context.Context) error { time.Sleep(7 * s); return nil }}, 6 * s, 8 * s, ""},
		{"a hook never returns", map[string]func(context.Context) error{"dead": func(context.Context) error { time.Sleep(time.Minute); return nil }}, 6 * s, 13 * s,
			"graceful: abandoned (cancelled work did not return within 2s): 1 guard: pre-stop/dead ×1"},
		{"two hooks fail", map[string]func(context.Context) error{"a": func(context.Context) error { return errors.New("no such service") },
			"b": func(ctx context.Context) error { wait(s)(ctx); return errors.New("no answer") }}, 2 * s, 2 * s,
			"graceful: pre-stop hook \"a\": no such service\ngraceful: pre-stop hook \"b\": no answer"},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(b *testRun) {
				began := time.Now()
				var opts []graceful.Option
				for name, f := range test.hooks {
					opts = append(opts, graceful.WithPreStop(name, f))
				}
				var stopped time.Duration
				err := b.run(func(s *ctxshutdown.Swansong) error { <-s.Done(); stopped = time.Since(began); return nil }, opts...)
				testkit.Equal(t, "stopped, over", []time.Duration{stopped, time.Since(began)}, []time.Duration{test.stopped, test.over})
				testkit.Equal(t, "error", testkit.ErrorText(err), test.want)
				time.Sleep(time.Hour)
			})
		})
	}
	t.Run("panic", func(t *testing.T) {
		bubble(t, func(b *testRun) {
			defer func() {
				p, _ := recover().(*graceful.PanicError)
				if p == nil || p.Value != "oops" {
					t.Errorf("recovered %v", p)
				}
			}()
			b.run(untilStopped, graceful.WithPreStop("a", func(context.Context) error { panic("oops") }))
		})
	})
	// Hooks run however the stop begins. They run even if f has returned and there is nothing to
	// drain, because the process may still have to be deregistered.
	for name, f := range map[string]func(s *ctxshutdown.Swansong) error{
		"f returned":         func(*ctxshutdown.Swansong) error { return nil },
		"Shutdown":           func(s *ctxshutdown.Swansong) error { s.Shutdown(); return nil },
		"end of the context": untilStopped,
	} {
		t.Run("run when "+name, func(t *testing.T) {
			bubble(t, func(b *testRun) {
				ran := false
				b.run(f, graceful.WithPreStop("a", func(ctx context.Context) error {
					ran = ctxshutdown.Sleep(ctx, s)
					return nil
				}))
				testkit.Equal(t, "ran to its end", ran, true)
			})
		})
	}
}

// After Force, Run goes to its phase Hard from any other phase. The hooks of WithPreStop are then
// not called, which is not an error. Run can notice the stop of the scope before or after the end
// of Work, so the test repeats the call many times.
func TestWithPreStop_ForceSkipsHooks(t *testing.T) {
	mine := errors.New("mine")
	duck := graceful.WithLameDuck(2 * time.Second)
	for _, test := range []struct {
		name string
		f    func(s *ctxshutdown.Swansong) error
		want []step
	}{
		{"while serving", func(s *ctxshutdown.Swansong) error { s.Force(mine); time.Sleep(time.Second); return nil },
			[]step{{graceful.Serving, 0}, {graceful.Hard, 0}, {graceful.Exit, time.Second}}},
		// Cancelling many contexts takes time, so Run can notice that the scope has been stopped
		// while Work is still running.
		{"with many contexts", func(s *ctxshutdown.Swansong) error {
			for range 1000 {
				one, _ := ctxshutdown.WithCancel(s)
				one.Done()
			}
			s.Force(mine)
			time.Sleep(time.Second)
			return nil
		}, []step{{graceful.Serving, 0}, {graceful.Hard, 0}, {graceful.Exit, time.Second}}},
		{"after Shutdown", func(s *ctxshutdown.Swansong) error { s.Shutdown(); s.Force(mine); time.Sleep(time.Second); return nil }, nil},
		{"and f returns", func(s *ctxshutdown.Swansong) error { s.Force(mine); return nil },
			[]step{{graceful.Serving, 0}, {graceful.Hard, 0}, {graceful.Exit, 0}}},
		{"in the lame duck", func(s *ctxshutdown.Swansong) error {
			<-process(t, s).LameDuck()
			s.Force(mine)
			time.Sleep(time.Second)
			return nil
		}, []step{{graceful.Serving, 0}, {graceful.LameDuck, time.Second}, {graceful.Hard, time.Second}, {graceful.Exit, 2 * time.Second}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for range 50 {
				bubble(t, func(b *testRun) {
					err := b.run(test.f, duck, graceful.WithPreStop("dereg", func(ctx context.Context) error {
						if test.want != nil {
							t.Error("the hook was called")
						}
						return nil
					}))
					text := testkit.ErrorText(err)
					if test.want == nil { // it is not known whether the hook is still running
						text = strings.Replace(text, "2 guards: main ×1, pre-stop/dereg ×1", "1 guard: main ×1", 1)
					}
					testkit.Equal(t, "error", text, "graceful: drained after force (Force was called: mine): 1 guard: main ×1")
					if test.want != nil {
						testkit.Equal(t, "phases", b.path.steps, test.want)
					}
				})
				if t.Failed() {
					return
				}
			}
		})
	}
}

// If the first hook calls Force, the hooks that have not started are not called, which is not an
// error.
func TestWithPreStop_HookMayCallForce(t *testing.T) {
	for range 20 {
		bubble(t, func(b *testRun) {
			opts := []graceful.Option{graceful.WithPreStop("first", func(ctx context.Context) error {
				process(t, ctx).Scope().Force(errors.New("mine"))
				return nil
			})}
			for range 200 {
				opts = append(opts, graceful.WithPreStop("more", func(context.Context) error { return nil }))
			}
			if err := b.run(untilStopped, opts...); graceful.ExitCode(err) != 2 || strings.Contains(testkit.ErrorText(err), "also") {
				t.Errorf("Run: %v", err)
			}
		})
		if t.Failed() {
			return
		}
	}
}

func TestExtend_GivesDrainMoreTimeUpToLimit(t *testing.T) {
	const s = time.Second
	bubble(t, func(b *testRun) {
		var got []time.Duration
		err := b.run(func(r *ctxshutdown.Swansong) error {
			ask := func(d time.Duration) { got = append(got, graceful.Extend(r, d, "a batch")) }
			ask(s) // this grants nothing: in the phase Serving there is no time limit to extend
			<-process(t, r).LameDuck()
			ask(20 * s) // 15 s are left, so the end moves by 5 s
			<-r.Done()  // the scope is stopped after 5 s
			ask(s)      // 15 s are left, which is more than s, so the end does not move
			ask(16 * s) // 15 s are left, so the end moves by 1 s
			ask(0)
			ask(-s)
			time.Sleep(14 * s) // now 2 s are left
			for range 100 {    // concurrent callers share one extension
				ask(4 * s)
			}
			testkit.Equal(t, "extended", process(t, r).Status().Extended, 8*s)
			got = got[:8]
			ask(time.Duration(1<<63 - 1)) // only 2 s more can be granted in total
			<-r.Work().Done()
			ask(s)
			return nil
		}, graceful.WithLameDuck(5*s), graceful.WithMaxExtension(10*s))
		testkit.Equal(t, "granted", got, []time.Duration{0, 20 * s, s, 16 * s, 0, 0, 4 * s, 4 * s, 6 * s, 0})
		testkit.Equal(t, "phases", b.path.steps, []step{{graceful.Serving, 0}, {graceful.LameDuck, s}, {graceful.Soft, 6 * s}, {graceful.Hard, 26 * s}, {graceful.Exit, 26 * s}})
		testkit.Equal(t, "exit code", graceful.ExitCode(err), 2)
	})
	testkit.Equal(t, "granted without a process", graceful.Extend(t.Context(), s, ""), time.Duration(0))
}

func TestWatch_DeliversEveryStatusInOrder(t *testing.T) {
	bubble(t, func(b *testRun) {
		type seen struct {
			Phase    graceful.Phase
			Left     time.Duration
			Cause    string
			Extended time.Duration
			Ready    bool
		}
		var all []seen
		calls, stopped := 0, 0
		b.run(func(s *ctxshutdown.Swansong) error {
			p := process(t, s)
			p.Watch(func(st graceful.Status) {
				if calls++; calls != 1 {
					t.Error("two calls of the callback at the same time")
				}
				time.Sleep(time.Millisecond) // the callback is slow, but still receives every status
				calls--
				v := seen{Phase: st.Phase, Cause: testkit.ErrorText(st.Cause), Extended: st.Extended, Ready: st.Ready}
				if !st.Until.IsZero() {
					v.Left = st.Until.Sub(st.Since)
				}
				all = append(all, v)
			})
			stops := make(chan func(), 1)
			stops <- p.Watch(func(graceful.Status) { stopped++; (<-stops)() })
			time.Sleep(s500)
			graceful.Ready(s)
			graceful.Ready(s)
			<-s.Done()
			graceful.Extend(s, 12*time.Second, "a batch")
			graceful.Ready(s)
			return nil
		})
		testkit.Equal(t, "seen", all, []seen{
			{Phase: graceful.Serving},
			{Phase: graceful.Serving, Ready: true},
			{Phase: graceful.Soft, Left: 10 * time.Second, Cause: "enough", Ready: true},
			{Phase: graceful.Soft, Left: 12 * time.Second, Cause: "enough", Extended: 2 * time.Second, Ready: true},
			{Phase: graceful.Exit, Cause: "enough", Extended: 2 * time.Second, Ready: true},
		})
		testkit.Equal(t, "calls of the one that was stopped", stopped, 1)
	})
}

const s500 = 500 * time.Millisecond

// A callback that blocks delays the return of Run by one second, and does not delay the phases.
func TestWatch_BlockedCallbackDelaysReturnOfRunByOneSecond(t *testing.T) {
	bubble(t, func(b *testRun) {
		began := time.Now()
		release := make(chan struct{})
		defer close(release)
		err := b.run(func(s *ctxshutdown.Swansong) error {
			process(t, s).Watch(func(graceful.Status) { <-release })
			return untilStopped(s)
		})
		testkit.Equal(t, "error", testkit.ErrorText(err), "")
		testkit.Equal(t, "took", time.Since(began), 2*time.Second)
	})
}

func TestWithLogger_LogsEachPhase(t *testing.T) {
	bubble(t, func(b *testRun) {
		var log output
		opts := &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}
		b.run(func(s *ctxshutdown.Swansong) error {
			hold(s, "jobs", s, time.Minute)
			synctest.Wait()
			graceful.Ready(s)
			<-s.Done()
			time.Sleep(3 * s500)
			graceful.Extend(s, 11500*time.Millisecond, "one more\nbatch")
			synctest.Wait()
			return nil
		}, graceful.WithLogger(slog.New(slog.NewTextHandler(&log, opts))), graceful.WithLameDuck(3*time.Second))
		testkit.Equal(t, "log", log.String(), `
level=INFO msg=serving phase=Serving
level=INFO msg=ready phase=Serving
level=INFO msg="no longer ready, still serving" phase=LameDuck cause=enough guards.count=2 guards.held="jobs ×1, main ×1" next=3s
level=INFO msg=draining phase=Soft cause=enough guards.count=2 guards.held="jobs ×1, main ×1" why="the lame-duck time of 3s is over" next=10s
level=INFO msg="waiting for jobs ×1" phase=Soft guards.count=2 guards.held="jobs ×1, main ×1" for=1s next=9s
level=INFO msg="drain extended" phase=Soft cause=enough guards.count=2 guards.held="jobs ×1, main ×1" next=13s by=3s reason="one more\nbatch"
level=INFO msg="waiting for jobs ×1" phase=Soft guards.count=1 guards.held="jobs ×1" for=6s next=7s
level=INFO msg="waiting for jobs ×1" phase=Soft guards.count=1 guards.held="jobs ×1" for=11s next=2s
level=WARN msg="drain cut short" phase=Hard cause=enough guards.count=1 guards.held="jobs ×1" why="the drain took longer than 13s" next=2s
level=ERROR msg=abandoned phase=Exit cause=enough guards.count=1 guards.held="jobs ×1" why="cancelled work did not return within 2s" took=15s
`[1:])
		printed, _, _ := strings.Cut(b.out.String(), "1 goroutine of the program:\n")
		testkit.Equal(t, "output", printed, `
graceful: abandoned, see the log:
	Set CTXSHUTDOWN_TRACE=1 to see where guards were acquired and how long they have been held.
`[1:])
		time.Sleep(time.Hour)
	})
}

// If work ends at the same time as a phase, Run counts the work either as in time or as late. The
// log, the error of Run and the counters agree about this.
func TestRun_LogErrorAndCountersAgreeIfWorkEndsExactlyAtDeadline(t *testing.T) {
	for _, test := range []struct {
		name  string
		until func(s *ctxshutdown.Swansong) // returns at the time at which the phase ends
	}{
		{"at the end of Soft", func(s *ctxshutdown.Swansong) { <-s.Done(); time.Sleep(10 * time.Second) }},
		{"at the end of Hard", func(s *ctxshutdown.Swansong) { <-s.Work().Done(); time.Sleep(2 * time.Second) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			said := map[int]int{}
			for i := range 300 {
				bubble(t, func(b *testRun) {
					var log output
					var counted graceful.Stats
					before := graceful.ReadStats()
					err := b.run(func(s *ctxshutdown.Swansong) error {
						test.until(s)
						for range i % 100 * 10 { // varies the time at which the work ends
							runtime.KeepAlive(i)
						}
						return nil
					}, graceful.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
					code := graceful.ExitCode(err)
					said[code]++
					want := map[int]string{0: "msg=drained ", 2: `msg="drained after force" `, 3: "msg=abandoned "}[code]
					if lines := strings.Split(strings.TrimSpace(log.String()), "\n"); !strings.Contains(lines[len(lines)-1], want) {
						t.Errorf("Run returned %v, and the log says %s", err, lines[len(lines)-1])
					}
					counted = graceful.ReadStats()
					testkit.Equal(t, "clean, forced, abandoned", []uint64{counted.Clean - before.Clean, counted.Forced - before.Forced, counted.Abandoned - before.Abandoned},
						[]uint64{map[int]uint64{0: 1}[code], map[int]uint64{2: 1}[code], map[int]uint64{3: 1}[code]})
					var drain *ctxshutdown.DrainError
					if errors.As(err, &drain) && drain.Report.Count() == 0 {
						t.Errorf("no guard was held, but Run returned %v", err)
					}
					time.Sleep(time.Hour)
				})
				if t.Failed() {
					return
				}
			}
			t.Logf("exit codes: %v", said)
		})
	}
}

func TestReadStats_CountsRunsAndGuardsReleasedAfterForce(t *testing.T) {
	bubble(t, func(b *testRun) {
		before := graceful.ReadStats()
		since := func() graceful.Stats {
			st := graceful.ReadStats()
			st.Clean -= before.Clean
			st.Forced -= before.Forced
			st.Abandoned -= before.Abandoned
			st.Late -= before.Late
			st.Extensions -= before.Extensions
			st.StillHeld -= before.StillHeld
			st.LongestDrain -= before.LongestDrain
			return st
		}
		b.run(untilStopped)
		testkit.Equal(t, "clean", since(), graceful.Stats{Clean: 1})
		b.run(func(s *ctxshutdown.Swansong) error {
			hold(s, "jobs", s.Work(), s500)
			hold(s, "jobs", s.Work(), s500)
			<-s.Done()
			graceful.Extend(s, 5*time.Second, "") // no extension: Soft lasts 10 s anyway
			graceful.Extend(s, time.Hour, "")
			return nil
		}, graceful.WithMaxExtension(24*time.Hour))
		testkit.Equal(t, "forced", since(), graceful.Stats{Clean: 1, Forced: 1, Late: 2, Extensions: 1, LongestDrain: time.Hour + s500 - before.LongestDrain})
		b.run(func(s *ctxshutdown.Swansong) error {
			hold(s, "jobs", s.Work(), s500)
			hold(s, "jobs", s.Work(), 10*time.Second)
			hold(s, "jobs", s.Work(), 20*time.Second)
			return untilStopped(s)
		})
		want := graceful.Stats{Clean: 1, Forced: 1, Abandoned: 1, Late: 3, Extensions: 1, StillHeld: 2, LongestDrain: time.Hour + s500 - before.LongestDrain}
		testkit.Equal(t, "abandoned", since(), want)
		time.Sleep(10 * time.Second)
		want.Late++
		testkit.Equal(t, "one was released late", since(), want)
		time.Sleep(10 * time.Second)
		want.Late++
		testkit.Equal(t, "both were released late", since(), want)
		testkit.Equal(t, "and are not counted twice", since(), want)
		var scope *ctxshutdown.Swansong
		b.run(func(s *ctxshutdown.Swansong) error {
			scope = s
			hold(s, "jobs", s.Work(), 10*time.Second)
			hold(s, "jobs", s.Work(), 20*time.Second)
			return untilStopped(s)
		})
		time.Sleep(10 * time.Second)
		want.Abandoned, want.StillHeld, want.Late = 2, 4, want.Late+1
		testkit.Equal(t, "one of two more was released late", since(), want)
		g := scope.Guard()
		testkit.Equal(t, "a guard acquired late takes nothing back", since(), want)
		time.Sleep(10 * time.Second)
		g.Release()
		want.Late++
		testkit.Equal(t, "all were released late", since(), want)
	})
}

// The jobs of a pool share a guard. The counters of ReadStats nevertheless count each job.
func TestReadStats_CountsJobsOfPools(t *testing.T) {
	bubble(t, func(b *testRun) {
		before := graceful.ReadStats()
		b.run(func(s *ctxshutdown.Swansong) error {
			p := eventloop.NewPool(s, 2)
			p.Submit(func() { time.Sleep(time.Hour) })
			p.Submit(func() { time.Sleep(2 * time.Hour) })
			return nil
		})
		for _, want := range []uint64{0, 1, 2} {
			st := graceful.ReadStats()
			testkit.Equal(t, "held", st.StillHeld-before.StillHeld, uint64(2))
			testkit.Equal(t, "released late", st.Late-before.Late, want)
			time.Sleep(time.Hour)
		}
	})
}

// Many goroutines call all functions and methods of a Process at random times. The run ends within
// its time limits, its phases only advance, and its result is consistent.
func TestStress_RunEndsInTimeDespiteRandomConcurrentCalls(t *testing.T) {
	const duck, soft, hard, most = 3 * time.Second, 5 * time.Second, 2 * time.Second, 4 * time.Second
	for seed := range uint64(300) {
		bubble(t, func(b *testRun) {
			dice := rand.New(rand.NewPCG(seed, 0))
			randomTime := func() time.Duration { return time.Duration(dice.IntN(20_000)) * time.Millisecond }
			before := graceful.ReadStats()
			var began, over time.Time
			var last graceful.Status
			var scope *ctxshutdown.Swansong
			err := b.run(func(s *ctxshutdown.Swansong) error {
				scope = s
				p := process(t, s)
				p.Watch(func(st graceful.Status) {
					if st.Phase < last.Phase || st.Phase == last.Phase && st.Until.Before(last.Until) || st.Extended < last.Extended || st.Extended > most {
						t.Errorf("seed %d: the status %+v was followed by %+v", seed, last, st)
					}
					if last = st; st.Phase > graceful.Serving && began.IsZero() {
						began = st.Since
					}
				})
				for range dice.IntN(4) {
					hold(s, "jobs", s, randomTime())
				}
				for range dice.IntN(3) {
					hold(s, "polite jobs", s.Work(), 0)
				}
				at := func(d time.Duration, f func()) { time.AfterFunc(d, f) }
				for range 10 {
					d := randomTime()
					at(randomTime(), func() { graceful.Extend(s, d, "why not") })
					at(randomTime(), func() { graceful.Ready(s); graceful.ReadStats(); p.Status() })
					at(randomTime(), p.Watch(func(graceful.Status) {}))
				}
				if dice.IntN(3) == 0 {
					at(randomTime(), func() { s.Shutdown() })
				}
				if dice.IntN(3) == 0 {
					at(randomTime(), func() { s.Force(nil) })
				}
				ctxshutdown.Sleep(s, randomTime())
				ctxshutdown.Sleep(s.Work(), randomTime())
				return nil
			}, graceful.WithLameDuck(duck), graceful.WithSoft(soft), graceful.WithHard(hard), graceful.WithMaxExtension(most),
				graceful.WithPreStop("a", func(ctx context.Context) error { ctxshutdown.Sleep(ctx, time.Second); return nil }))
			over = time.Now()
			code, left := graceful.ExitCode(err), scope.GuardCount()
			if took := over.Sub(began); took > duck+soft+most+hard {
				t.Errorf("seed %d: took %v", seed, took)
			}
			if (code == 3) != (left > 0) || last.Phase != graceful.Exit {
				t.Errorf("seed %d: exit code %d with %d guards held, on %v", seed, code, left, last.Phase)
			}
			after := graceful.ReadStats()
			testkit.Equal(t, "clean, forced, abandoned", []uint64{after.Clean - before.Clean, after.Forced - before.Forced, after.Abandoned - before.Abandoned},
				[]uint64{map[int]uint64{0: 1}[code], map[int]uint64{2: 1}[code], map[int]uint64{3: 1}[code]})
			time.Sleep(time.Hour)
		})
	}
}

func TestRun_RejectsBadInput(t *testing.T) {
	f := func(*ctxshutdown.Swansong) error { t.Error("f was called"); return nil }
	for _, test := range []struct {
		opt  graceful.Option
		want string
	}{
		{graceful.WithLameDuck(-1), "graceful: WithLameDuck(-1ns): must not be negative"},
		{graceful.WithLameDuck(5), "graceful: WithLameDuck(5ns): must be at least 1ms; did you forget the unit, and mean 5*time.Second?"},
		{graceful.WithLameDuck(25 * time.Hour), "graceful: WithLameDuck(25h0m0s): must be at most 24h0m0s"},
		{graceful.WithSoft(0), "graceful: WithSoft(0s): must be at least 1ms; work needs time to finish"},
		{graceful.WithSoft(-10 * time.Second), "graceful: WithSoft(-10s): must not be negative"},
		{graceful.WithSoft(10), "graceful: WithSoft(10ns): must be at least 1ms; did you forget the unit, and mean 10*time.Second?"},
		{graceful.WithSoft(1<<63 - 1), "graceful: WithSoft(2562047h47m16.854775807s): must be at most 24h0m0s"},
		{graceful.WithHard(0), "graceful: WithHard(0s): must be at least 1ms; work needs time to finish"},
		{graceful.WithHard(-1), "graceful: WithHard(-1ns): must not be negative"},
		{graceful.WithMaxExtension(-time.Second), "graceful: WithMaxExtension(-1s): must not be negative"},
		{graceful.WithMaxExtension(30), "graceful: WithMaxExtension(30ns): must be at least 1ms; did you forget the unit, and mean 30*time.Second?"},
		{graceful.WithSignals(os.Interrupt, nil), "graceful: WithSignals: nil signal; pass a signal such as os.Interrupt"},
		{graceful.WithSignals(os.Kill), "graceful: WithSignals(killed): a program cannot catch this signal"},
		{graceful.WithOutput(nil), "graceful: WithOutput: nil writer; use io.Discard to disable output"},
		{graceful.WithPreStop("consul", nil), `graceful: WithPreStop("consul", nil): the function must not be nil`},
	} {
		if runtime.GOOS == "windows" {
			test.want = strings.Replace(test.want, "killed", "kill", 1)
		}
		testkit.Equal(t, "error", testkit.ErrorText(graceful.Run(t.Context(), f, nil, test.opt)), test.want)
	}
	for name, call := range map[string]func(){
		"graceful: Run with a nil context":                                         func() { graceful.Run(nil, f) }, //lint:ignore SA1012 that is the test
		"graceful: Run with a nil function":                                        func() { graceful.Run(t.Context(), nil) },
		"graceful: nil context":                                                    func() { graceful.FromContext(nil) }, //lint:ignore SA1012 that is the test
		"graceful: InOrder with a nil context":                                     func() { graceful.InOrder(nil) },     //lint:ignore SA1012 that is the test
		"graceful: InOrder with a nil stage; make one with ctxshutdown.WithCancel": func() { graceful.InOrder(t.Context(), nil) },
	} {
		func() {
			defer func() { testkit.Equal(t, "panic", recover(), any(name)) }()
			call()
		}()
	}
}

func TestRun_RejectsPhasesLongerThanGracePeriod(t *testing.T) {
	for _, test := range []struct {
		seconds string
		opts    []graceful.Option
		want    string
	}{
		{"13", nil, ""},
		{"", nil, ""},
		{"12", nil, "graceful: the phases take longer than the grace period: lame duck 0s + soft 10s + hard 2s = 12s >= 12s (TERMINATION_GRACE_PERIOD_SECONDS=12); " +
			"shorten a phase or lengthen the grace period"},
		{"11", nil, "graceful: the phases take longer than the grace period: lame duck 0s + soft 10s + hard 2s = 12s >= 11s (TERMINATION_GRACE_PERIOD_SECONDS=11); " +
			"shorten a phase or lengthen the grace period"},
		{"30", []graceful.Option{graceful.WithLameDuck(5 * time.Second), graceful.WithSoft(25 * time.Second)},
			"graceful: the phases take longer than the grace period: lame duck 5s + soft 25s + hard 2s = 32s >= 30s (TERMINATION_GRACE_PERIOD_SECONDS=30); " +
				"shorten a phase or lengthen the grace period"},
		{"30s", nil, `graceful: TERMINATION_GRACE_PERIOD_SECONDS="30s": must be a whole number of seconds, 1 or more`},
		{"0", nil, `graceful: TERMINATION_GRACE_PERIOD_SECONDS="0": must be a whole number of seconds, 1 or more`},
		{"-1", nil, `graceful: TERMINATION_GRACE_PERIOD_SECONDS="-1": must be a whole number of seconds, 1 or more`},
	} {
		t.Run(test.seconds, func(t *testing.T) {
			t.Setenv("TERMINATION_GRACE_PERIOD_SECONDS", test.seconds)
			called := false
			err := graceful.Run(t.Context(), func(*ctxshutdown.Swansong) error { called = true; return nil }, test.opts...)
			testkit.Equal(t, "error", testkit.ErrorText(err), test.want)
			testkit.Equal(t, "f was called", called, test.want == "")
		})
	}
}

// Without a service manager, extensions end before the grace period, since a process that runs
// longer is killed with SIGKILL.
func TestExtend_TotalTimeStaysWithinGracePeriod(t *testing.T) {
	for _, test := range []struct {
		seconds           string
		granted, lastWord time.Duration
	}{
		{"60", 40 * time.Second, 42 * time.Second}, // WithMaxExtension limits the extension
		{"20", 17 * time.Second, 19 * time.Second},
		{"14", 11 * time.Second, 13 * time.Second},
		{"13", 10 * time.Second, 12 * time.Second},
	} {
		t.Run(test.seconds, func(t *testing.T) {
			t.Setenv("TERMINATION_GRACE_PERIOD_SECONDS", test.seconds)
			bubble(t, func(b *testRun) {
				var asked time.Time
				leave := make(chan struct{})
				err := b.run(func(s *ctxshutdown.Swansong) error {
					<-s.Done()
					asked = time.Now()
					testkit.Equal(t, "granted", graceful.Extend(s, time.Minute, ""), test.granted)
					<-leave
					return nil
				})
				testkit.Equal(t, "exit code", graceful.ExitCode(err), 3)
				testkit.Equal(t, "abandoned after", time.Since(asked), test.lastWord)
				close(leave)
			})
		})
	}
}

func TestPhase_StringIsNameOfConstant(t *testing.T) {
	var got []string
	for r := graceful.Serving - 1; r <= graceful.Exit+1; r++ {
		got = append(got, r.String())
	}
	testkit.Equal(t, "names", got, []string{"Phase(?)", "Serving", "LameDuck", "Soft", "Hard", "Exit", "Phase(?)"})
}

func TestExitCode_DiffersByOutcome(t *testing.T) {
	wrapped := fmt.Errorf("main: %w", &graceful.AbandonedError{DrainError: &ctxshutdown.DrainError{Cause: errEnough}})
	testkit.Equal(t, "of an error around it", graceful.ExitCode(wrapped), 3)
	testkit.Equal(t, "of no outcome", graceful.ExitCode(errEnough), 1)
}
