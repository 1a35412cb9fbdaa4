package ctxshutdown_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

func TestWait_ReturnsNilIfScopeIsComplete(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	testRules(t, "docs/internals/core.md#semantic-8", []rule{
		{"the scope is complete: nil for every ctx", func(c claim, s *ctxshutdown.Swansong) {
			before, done := s.Completion(), s.Shutdown()
			for _, ctx := range []context.Context{s, s.Work(), ended, context.Background()} {
				c.equal("result", done.Wait(ctx), nil)
				c.equal("result", before.Wait(ctx), nil)
			}
			defer s.Guard().Release()
			c.equal("result once resolved, under a late guard", done.Wait(ended), nil)
		}},
		{"ctx has ended with the stop: ErrWaitContext, with advice", func(c claim, s *ctxshutdown.Swansong) {
			defer s.Guard().Release()
			done := s.Shutdown()
			for _, ctx := range []context.Context{s, child(s), context.WithValue(s, valueKey{}, 1)} {
				err := done.Wait(ctx)
				c.isTrue("the error is ErrWaitContext", errors.Is(err, ctxshutdown.ErrWaitContext))
				c.isTrue("the error does not match a time-out", !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded))
				c.isTrue("the error shows how to make a context for Wait", strings.Contains(err.Error(), "context.WithTimeout(context.Background()"))
			}
		}},
		{"a time-out that an earlier wait used up: what is held", func(c claim, s *ctxshutdown.Swansong) {
			defer s.Guard().Release()
			for _, done := range []*ctxshutdown.Completion{s.Completion(), s.Shutdown()} {
				err := done.Wait(ended)
				var drain *ctxshutdown.DrainError
				c.isTrue("the error is a DrainError with the guard", errors.As(err, &drain) && drain.Report.Count() == 1)
				c.isTrue("the error has the cause of ctx", errors.Is(err, context.Canceled))
			}
		}},
		{"a context that was cancelled with the cause of the stop: what is held", func(c claim, s *ctxshutdown.Swansong) {
			defer s.Guard().Release()
			unrelated, cancel := context.WithCancelCause(context.Background())
			cancel(errCause)
			err := s.ShutdownCause(errCause).Wait(unrelated)
			var drain *ctxshutdown.DrainError
			c.isTrue("the error is a DrainError with the guard", errors.As(err, &drain) && drain.Report.Count() == 1)
		}},
		{"the parent of a scope above, whose stop does not reach this one: what is held", func(c claim, _ *ctxshutdown.Swansong) {
			base, end := context.WithCancel(context.Background())
			s := child(context.WithoutCancel(ctxshutdown.New(base)))
			defer s.Guard().Release()
			end()
			err := s.Completion().Wait(base)
			var drain *ctxshutdown.DrainError
			c.isTrue("the error is a DrainError with the guard", errors.As(err, &drain) && drain.Report.Count() == 1)
		}},
		{"a context that is done without an error", func(c claim, s *ctxshutdown.Swansong) {
			defer s.Guard().Release()
			err := s.Shutdown().Wait(onDone{context.Background(), func() {}})
			var drain *ctxshutdown.DrainError
			c.isTrue("the error is a DrainError with the guard", errors.As(err, &drain) && drain.Report.Count() == 1)
			c.isTrue("the error says so: "+err.Error(), strings.Contains(err.Error(), "the Done channel of the context is closed, but its Err is nil"))
		}},
		{"waiting does not stop the scope", func(c claim, s *ctxshutdown.Swansong) {
			err := s.Completion().Wait(timeout(c))
			var drain *ctxshutdown.DrainError
			c.isTrue("the error is a DrainError without guards", errors.As(err, &drain) && drain.Report.Count() == 0)
			c.checkState(s, ctxshutdown.Running, 0)
		}},
		{"the scope completes and ctx ends at the same time: nil", func(c claim, s *ctxshutdown.Swansong) {
			for range 50 { // repeated, because a select with two ready cases picks one at random
				k := child(s)
				g := k.Guard()
				err := k.Shutdown().Wait(onDone{context.Background(), g.Release})
				if err != nil {
					c.Fatalf("%s: the scope is complete, and Wait returns %v", c.source, err)
				}
			}
		}},
	})
}

type valueKey struct{}

// timeout returns a context that ends when its method Done is called: after Wait has first checked
// the context, and before Wait waits for it.
func timeout(c claim) context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	c.Cleanup(func() { cancel(nil) })
	return onDone{ctx, func() { cancel(context.DeadlineExceeded) }}
}

// onDone is a context whose Done calls f and returns a closed channel.
type onDone struct {
	context.Context
	f func()
}

var closedChannel = func() <-chan struct{} { done := make(chan struct{}); close(done); return done }()

func (ctx onDone) Done() <-chan struct{} {
	ctx.f()
	return closedChannel
}

// onFirstDone returns a context like ctx, whose first call of Done calls f.
func onFirstDone(ctx context.Context, f func()) context.Context {
	return firstDone{ctx, sync.OnceFunc(f)}
}

type firstDone struct {
	context.Context
	f func()
}

func (ctx firstDone) Done() <-chan struct{} {
	ctx.f()
	return ctx.Context.Done()
}

// waitSetup has a scope s below a scope root. The scope s holds a guard while a test waits for the
// completion of s.
type waitSetup struct {
	*testing.T
	base context.Context // the context that root derives from; has a deadline in two hours
	end  context.CancelFunc
	root *ctxshutdown.Swansong
	s    *ctxshutdown.Swansong
}

// own returns ctx and cancels it when the test ends.
func (w waitSetup) own(ctx context.Context, cancel context.CancelFunc) context.Context {
	w.Cleanup(cancel)
	return ctx
}

func TestWait_DistinguishesContextEndedByStopFromTimeout(t *testing.T) {
	const (
		mistake = "ErrWaitContext"
		drain   = "DrainError"
	)
	type ctx = context.Context
	nothing := func(waitSetup) {}
	shutdown := func(w waitSetup) { w.root.Shutdown() }
	endBase := func(w waitSetup) { w.end() } // ends base with the cause context.Canceled
	for _, test := range []struct {
		name string
		ctx  func(w waitSetup) ctx // the context passed to Wait
		stop func(w waitSetup)     // what the test does while Wait blocks
		want string
	}{
		{"derived from the scope", func(w waitSetup) ctx { return w.own(context.WithCancel(w.s)) }, shutdown, mistake},
		{"derived from the scope, std cause", func(w waitSetup) ctx { return w.own(context.WithCancel(w.s)) }, endBase, mistake},
		{"derived from the scope, deadline", func(w waitSetup) ctx { return w.own(context.WithCancel(w.s)) }, nothing, mistake},
		{"derived from an ancestor, std cause", func(w waitSetup) ctx { return w.own(context.WithCancel(w.root)) }, endBase, mistake},
		{"derived from a child, std cause", func(w waitSetup) ctx { return w.own(context.WithCancel(child(w.s))) }, endBase, mistake},
		{"the scope, std cause", func(w waitSetup) ctx { return w.s }, endBase, mistake},
		{"an ancestor, std cause", func(w waitSetup) ctx { return w.root }, endBase, mistake},
		{"New's parent, std cause", func(w waitSetup) ctx { return w.base }, endBase, mistake},
		{"New's parent, deadline", func(w waitSetup) ctx { return w.base }, nothing, mistake},
		{"unrelated, ended with the very cause of the stop", func(w waitSetup) ctx {
			own, cancel := context.WithCancelCause(context.Background())
			context.AfterFunc(w.s, func() { cancel(context.Cause(w.s)) })
			return own
		}, func(w waitSetup) { w.root.ShutdownCause(errCause) }, drain},
		{"unrelated, cancelled later with the very cause of the stop", func(waitSetup) ctx {
			own, cancel := context.WithCancelCause(context.Background())
			time.AfterFunc(time.Second, func() { cancel(errCause) })
			return own
		}, func(w waitSetup) { w.root.ShutdownCause(errCause) }, drain},
		{"another root, stopped with the very cause of the stop", func(w waitSetup) ctx {
			other := ctxshutdown.New(context.Background())
			context.AfterFunc(w.s, func() { other.ShutdownCause(errCause) })
			return other
		}, func(w waitSetup) { w.root.ShutdownCause(errCause) }, drain},
		{"derived from a sibling, stopped together", func(w waitSetup) ctx { return w.own(context.WithCancel(child(w.root))) }, shutdown, mistake},
		{"a sibling, stopped by itself with the same cause", func(w waitSetup) ctx {
			sibling := child(w.root)
			time.AfterFunc(time.Second, func() { sibling.Shutdown() })
			return sibling
		}, func(w waitSetup) { w.s.Shutdown() }, drain},
		{"a child without cancellation, stopped before with the same cause", func(w waitSetup) ctx {
			apart := child(context.WithoutCancel(w.s))
			apart.ShutdownCause(errCause)
			return apart
		}, func(w waitSetup) { w.root.ShutdownCause(errCause) }, drain},
		{"New's parent with a value, std cause", func(w waitSetup) ctx { return context.WithValue(w.base, valueKey{}, 1) }, endBase, mistake},
		{"its own time-out", func(w waitSetup) ctx { return w.own(context.WithTimeout(context.Background(), time.Second)) }, shutdown, drain},
		{"its own time-out, before any stop", func(w waitSetup) ctx { return w.own(context.WithTimeout(context.Background(), time.Second)) }, nothing, drain},
		{"its own time-out, after a deadline", func(w waitSetup) ctx { return w.own(context.WithTimeout(context.Background(), 3*time.Hour)) }, nothing, drain},
		{"its own time-out, derived without cancellation from the scope, after a deadline", func(w waitSetup) ctx {
			return w.own(context.WithTimeout(context.WithoutCancel(w.s), 3*time.Hour))
		}, nothing, drain},
		{"its own cancellation, after the stop", func(w waitSetup) ctx {
			own, cancel := context.WithCancel(context.Background())
			time.AfterFunc(time.Second, cancel)
			return own
		}, endBase, drain},
		{"another root, which is stopped later", func(waitSetup) ctx {
			other := ctxshutdown.New(context.Background())
			time.AfterFunc(time.Second, func() { other.Shutdown() })
			return other
		}, shutdown, drain},
		{"another root, std cause", func(w waitSetup) ctx {
			other := ctxshutdown.New(context.Background())
			time.AfterFunc(time.Second, func() { other.ShutdownCause(context.Canceled) })
			return other
		}, endBase, drain},
		{"a second signal, whose cause equals that of the first", func(waitSetup) ctx {
			second, cancel := context.WithCancelCause(context.Background())
			time.AfterFunc(time.Second, func() { cancel(signalled("interrupt")) })
			return second
		}, func(w waitSetup) { w.root.ShutdownCause(signalled("interrupt")) }, drain},
		{"derived from the scope, by a signal", func(w waitSetup) ctx { return w.own(context.WithCancel(w.s)) },
			func(w waitSetup) { w.root.ShutdownCause(signalled("interrupt")) }, mistake},
		{"derived from Work, forced", func(w waitSetup) ctx { return w.own(context.WithCancel(w.s.Work())) },
			func(w waitSetup) { w.root.Shutdown(); w.root.Force(nil) }, drain},
		{"derived from the scope, which stops while Wait begins", func(w waitSetup) ctx {
			return onFirstDone(w.own(context.WithCancel(w.s)), w.end)
		}, nothing, mistake},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := claim{t, "docs/internals/core.md#semantic-8"}
				base, end := context.WithTimeout(t.Context(), 2*time.Hour)
				defer end()
				root := ctxshutdown.New(base, ctxshutdown.WithName("root"))
				s := child(root, ctxshutdown.WithName("s"))
				defer s.Guard().Release()
				w := waitSetup{t, base, end, root, s}
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
					c.isTrue("the error has the cause of the context", de.Cause == context.Cause(ctx) && errors.Is(err, de.Cause))
					c.equal("blockers", de.Report.Entries(), []ctxshutdown.GuardEntry{{Path: "root/s", Count: 1}})
					c.isTrue("the error names the scope: "+err.Error(), strings.Contains(err.Error(), "root/s"))
				case errors.Is(err, ctxshutdown.ErrWaitContext):
					c.equal("result", mistake, test.want)
				default:
					t.Errorf("Wait returns %v, want a %s", err, test.want)
				}
			})
		})
	}
}

// A stop reaches the contexts that derive from a scope one after the other. Wait may learn of the
// stop before the stop has reached the context that was passed to Wait. The long chain of contexts
// makes that likely: in half of the rounds, package context cancels s first.
func TestWait_RejectsDerivedContextEvenIfStopReachesItLate(t *testing.T) {
	c := claim{t, "docs/internals/core.md#semantic-8"}
	for range 30 {
		base, end := context.WithCancel(t.Context())
		root := ctxshutdown.New(base)
		s := child(root)
		g := s.Guard()
		ctx := context.Context(root)
		for range 20_000 {
			derived, cancel := context.WithCancel(ctx)
			defer cancel()
			ctx = derived
		}
		begun, result := make(chan struct{}), make(chan error)
		go func() { result <- s.Completion().Wait(onFirstDone(ctx, func() { close(begun) })) }()
		<-begun
		end()
		c.isTrue("the error is ErrWaitContext", errors.Is(<-result, ctxshutdown.ErrWaitContext))
		g.Release()
	}
}

// If Wait is given the context from which the scope derives, it can learn of the end of that
// context before the stop has reached the scope. It must then wait until the stop has reached the
// scope.
func TestWait_RejectsParentContextEvenIfItsEndReachesScopeLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := claim{t, "docs/internals/core.md#semantic-8"}
		base := &slowContext{Context: context.Background(), done: make(chan struct{})}
		s := child(ctxshutdown.New(base))
		defer s.Guard().Release()
		result := make(chan error, 1)
		go func() { result <- s.Completion().Wait(base) }()
		synctest.Wait()
		base.ended.Store(true)
		close(base.done)
		synctest.Wait()
		for _, f := range base.afterFuncs {
			f()
		}
		c.isTrue("the error is ErrWaitContext", errors.Is(<-result, ctxshutdown.ErrWaitContext))
	})
}

// When a slowContext ends, the contexts that derive from it end only when the test calls the
// functions in afterFuncs.
type slowContext struct {
	context.Context
	done       chan struct{}
	ended      atomic.Bool
	afterFuncs []func() // the functions that package context has passed to AfterFunc
}

func (c *slowContext) Done() <-chan struct{} { return c.done }

func (c *slowContext) Err() error {
	if c.ended.Load() {
		return context.Canceled
	}
	return nil
}

func (c *slowContext) AfterFunc(f func()) (stop func() bool) {
	c.afterFuncs = append(c.afterFuncs, f)
	return func() bool { return true }
}

// The type of a cause can be one that does not support ==, which panics for values of such a type.
func TestWait_AcceptsIncomparableCause(t *testing.T) {
	c, s := claim{t, "docs/internals/core.md#semantic-8"}, ctxshutdown.New(t.Context())
	defer s.Guard().Release()
	ctx, cancel := context.WithCancel(s)
	defer cancel()
	result := make(chan error)
	go func() {
		defer close(result)
		defer func() {
			if p := recover(); p != nil {
				t.Errorf("Wait panics: %v", p)
			}
		}()
		result <- s.Completion().Wait(onFirstDone(ctx, func() { s.ShutdownCause(wrapped{joined{errCause}}) }))
	}()
	err := <-result
	c.isTrue("ErrWaitContext, because ctx derives from the scope", errors.Is(err, ctxshutdown.ErrWaitContext))
}

// wrapped is a comparable type, but == panics for two values of it if the errors in them are of an
// incomparable type.
type wrapped struct{ error }

type joined []error

func (joined) Error() string { return "several" }

// signalled is an error like the cause that signal.NotifyContext sets since Go 1.26: two errors for
// the same signal are equal.
type signalled string

func (s signalled) Error() string { return string(s) + " signal received" }
