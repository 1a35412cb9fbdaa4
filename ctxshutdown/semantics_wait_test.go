package ctxshutdown_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

func TestSemantic8_WaitOfACompleteScopeIsNil(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	testRules(t, "semantic 8", []rule{
		{"complete: nil whatever ctx is", func(c claim, s *ctxshutdown.Swansong) {
			before, done := s.Completion(), s.Shutdown()
			for _, ctx := range []context.Context{s, s.Work(), ended, context.Background()} {
				c.equal("result", done.Wait(ctx), nil)
				c.equal("result", before.Wait(ctx), nil)
			}
			defer s.Guard().Release()
			c.equal("result once resolved, under a late guard", done.Wait(ended), nil)
		}},
		{"ctx has ended on entry: ErrWaitContext, and how to do better", func(c claim, s *ctxshutdown.Swansong) {
			defer s.Guard().Release()
			done := s.Shutdown()
			for _, ctx := range []context.Context{s, child(s), ended} {
				err := done.Wait(ctx)
				c.isTrue("ErrWaitContext", errors.Is(err, ctxshutdown.ErrWaitContext))
				c.isTrue("which is no time-out", !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded))
				c.isTrue("with the fix", strings.Contains(err.Error(), "context.WithTimeout(context.Background()"))
			}
		}},
		{"waiting tells nobody to stop", func(c claim, s *ctxshutdown.Swansong) {
			err := s.Completion().Wait(timeout(c))
			var drain *ctxshutdown.DrainError
			c.isTrue("a DrainError", errors.As(err, &drain) && drain.Report.Count() == 0)
			c.sees(s, ctxshutdown.Running, 0)
		}},
		{"both at once: complete counts", func(c claim, s *ctxshutdown.Swansong) {
			for range 50 { // a select with two ready cases picks any
				k := child(s)
				g := k.Guard()
				err := k.Shutdown().Wait(onDone{context.Background(), g.Release})
				if err != nil {
					c.Fatalf("%s: complete, and still Wait returns %v", c.source, err)
				}
			}
		}},
	})
}

// timeout returns a context that is alive when Wait looks at it on entry, and ended when it looks at Done.
func timeout(c claim) context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	c.Cleanup(func() { cancel(nil) })
	return onDone{ctx, func() { cancel(context.DeadlineExceeded) }}
}

// onDone is a context that ends as soon as somebody waits for it, by what f does.
type onDone struct {
	context.Context
	f func()
}

var over = func() <-chan struct{} { done := make(chan struct{}); close(done); return done }()

func (ctx onDone) Done() <-chan struct{} {
	ctx.f()
	return over
}

// A world is a scope s under a root that is waited for while it holds a guard.
type world struct {
	*testing.T
	base context.Context // what root derives from; times out after two hours
	end  context.CancelFunc
	root *ctxshutdown.Swansong
	s    *ctxshutdown.Swansong
}

// own takes what the functions of package context return.
func (w world) own(ctx context.Context, cancel context.CancelFunc) context.Context {
	w.Cleanup(cancel)
	return ctx
}

func TestSemantic8_WaitTellsAMistakeFromATimeout(t *testing.T) {
	const (
		mistake = "ErrWaitContext"
		drain   = "DrainError"
	)
	type ctx = context.Context
	nothing := func(world) {}
	shutdown := func(w world) { w.root.Shutdown() }
	endBase := func(w world) { w.end() } // the cause is context.Canceled
	for _, test := range []struct {
		name string
		ctx  func(w world) ctx // what is waited with
		stop func(w world)     // while the wait is on
		want string
	}{
		{"derived from the scope", func(w world) ctx { return w.own(context.WithCancel(w.s)) }, shutdown, mistake},
		{"derived from the scope, std cause", func(w world) ctx { return w.own(context.WithCancel(w.s)) }, endBase, mistake},
		{"derived from the scope, deadline", func(w world) ctx { return w.own(context.WithCancel(w.s)) }, nothing, mistake},
		{"derived from an ancestor, std cause", func(w world) ctx { return w.own(context.WithCancel(w.root)) }, endBase, mistake},
		{"derived from a child, std cause", func(w world) ctx { return w.own(context.WithCancel(child(w.s))) }, endBase, mistake},
		{"the scope, std cause", func(w world) ctx { return w.s }, endBase, mistake},
		{"an ancestor, std cause", func(w world) ctx { return w.root }, endBase, mistake},
		{"New's parent, std cause", func(w world) ctx { return w.base }, endBase, mistake},
		{"New's parent, deadline", func(w world) ctx { return w.base }, nothing, mistake},
		{"unrelated, ended with the very cause of the stop", func(w world) ctx {
			own, cancel := context.WithCancelCause(context.Background())
			context.AfterFunc(w.s, func() { cancel(context.Cause(w.s)) })
			return own
		}, func(w world) { w.root.ShutdownCause(errCause) }, mistake},
		{"its own time-out", func(w world) ctx { return w.own(context.WithTimeout(context.Background(), time.Second)) }, shutdown, drain},
		{"its own time-out, before any stop", func(w world) ctx { return w.own(context.WithTimeout(context.Background(), time.Second)) }, nothing, drain},
		{"its own time-out, after a deadline", func(w world) ctx { return w.own(context.WithTimeout(context.Background(), 3*time.Hour)) }, nothing, drain},
		{"its own time-out without the signal of the scope, after a deadline", func(w world) ctx {
			return w.own(context.WithTimeout(context.WithoutCancel(w.s), 3*time.Hour))
		}, nothing, drain},
		{"its own cancellation, after the stop", func(w world) ctx {
			own, cancel := context.WithCancel(context.Background())
			time.AfterFunc(time.Second, cancel)
			return own
		}, endBase, drain},
		{"another root, which stops after this one", func(world) ctx {
			other := ctxshutdown.New(context.Background())
			time.AfterFunc(time.Second, func() { other.Shutdown() })
			return other
		}, shutdown, drain},
		{"another root, std cause", func(w world) ctx {
			other := ctxshutdown.New(context.Background())
			time.AfterFunc(time.Second, func() { other.ShutdownCause(context.Canceled) })
			return other
		}, endBase, drain},
		{"a second signal, whose cause equals that of the first", func(world) ctx {
			second, cancel := context.WithCancelCause(context.Background())
			time.AfterFunc(time.Second, func() { cancel(signalled("interrupt")) })
			return second
		}, func(w world) { w.root.ShutdownCause(signalled("interrupt")) }, drain},
		{"derived from the scope, by a signal", func(w world) ctx { return w.own(context.WithCancel(w.s)) },
			func(w world) { w.root.ShutdownCause(signalled("interrupt")) }, mistake},
		{"derived from Work, forced", func(w world) ctx { return w.own(context.WithCancel(w.s.Work())) },
			func(w world) { w.root.Shutdown(); w.root.Force(nil) }, drain},
		{"derived from the scope, which stops during the look on entry", func(w world) ctx {
			return onErr{w.own(context.WithCancel(w.s)), new(atomic.Int32), func(call int32, ctx context.Context) error {
				err := ctx.Err()
				if call == 1 {
					w.end()
				}
				return err
			}}
		}, nothing, mistake},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := claim{t, "semantic 8"}
				base, end := context.WithTimeout(t.Context(), 2*time.Hour)
				defer end()
				root := ctxshutdown.New(base, ctxshutdown.WithName("root"))
				s := child(root, ctxshutdown.WithName("s"))
				defer s.Guard().Release()
				w := world{t, base, end, root, s}
				ctx := test.ctx(w)

				result := make(chan error)
				go func() { result <- s.Completion().Wait(ctx) }()
				synctest.Wait()
				test.stop(w)
				err := <-result

				var de *ctxshutdown.DrainError
				switch {
				case errors.As(err, &de):
					c.equal("result", drain, test.want)
					c.isTrue("the cause is why the wait ended", de.Cause == context.Cause(ctx) && errors.Is(err, de.Cause))
					c.equal("blockers", de.Report.Entries(), []ctxshutdown.GuardEntry{{Path: "root/s", Count: 1}})
					c.isTrue("the error names them: "+err.Error(), strings.Contains(err.Error(), "root/s"))
				case errors.Is(err, ctxshutdown.ErrWaitContext):
					c.equal("result", mistake, test.want)
				default:
					t.Errorf("semantic 8: Wait returns %v, want %s", err, test.want)
				}
			})
		})
	}
}

// A cause may be of any type, also one that == panics on.
func TestSemantic8_WaitWithACauseThatCannotBeCompared(t *testing.T) {
	c, s := claim{t, "semantic 8"}, ctxshutdown.New(t.Context())
	defer s.Guard().Release()
	ctx, cancel := context.WithCancel(s)
	defer cancel()
	result := make(chan error)
	go func() {
		defer close(result)
		defer func() {
			if p := recover(); p != nil {
				t.Errorf("semantic 8: Wait panics: %v", p)
			}
		}()
		result <- s.Completion().Wait(onErr{ctx, new(atomic.Int32), func(call int32, ctx context.Context) error {
			err := ctx.Err()
			if call == 1 {
				s.ShutdownCause(wrapped{joined{errCause}})
			}
			return err
		}})
	}()
	err := <-result
	c.isTrue("a mistake, by where ctx comes from", errors.Is(err, ctxshutdown.ErrWaitContext))
}

// wrapped is of a comparable type, and its values may still be incomparable.
type wrapped struct{ error }

type joined []error

func (joined) Error() string { return "several" }

// signalled is a cause as signal.NotifyContext gives it, from Go 1.26 on: one that is equal for each ^C.
type signalled string

func (s signalled) Error() string { return string(s) + " signal received" }
