package graceful

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// A hook is what WithPreStop was given.
type hook struct {
	name string
	f    func(ctx context.Context) error
}

// WithPreStop adds a function that runs at the beginning of [Soft], before the root scope is shut down: to deregister
// from a service discovery, say. All of them run at once, and have half of the soft time, so that the other half is left
// for the drain; their context ends then, or when a signal leads to the next rung, and the shutdown waits for them no
// longer. The drain does: a hook is a guard of the scope "pre-stop/name". Its error becomes part of what [Run] returns, and
// its panic is treated as one of f is. Force leads past Soft: no hook begins then, which is no error.
func WithPreStop(name string, f func(ctx context.Context) error) Option {
	return option(func(c *config) error {
		if f == nil {
			return fmt.Errorf("graceful: WithPreStop(%q, nil): must be a function", name)
		}
		c.hooks = append(c.hooks, hook{name, f})
		return nil
	})
}

// hooks are the pre-stop hooks of a run.
type hooks struct {
	over chan struct{} // closed when the shutdown need not wait any more

	mu     sync.Mutex
	errors []error
	taken  bool // they are: nobody asks any more
}

func (h *hooks) add(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p, ok := err.(*PanicError); ok && h.taken {
		panic(p) // nobody else is there to raise it
	}
	h.errors = append(h.errors, err)
}

// last returns what the hooks have returned, for Run that waits no longer.
func (h *hooks) last() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.taken = true
	return errors.Join(h.errors...)
}

// startHooks runs the hooks in scopes below the Work of the root: somebody may have shut it down, which does not mean
// that nobody needs to be told.
func (p *Process) startHooks(h *hooks) {
	parent, cancel := ctxshutdown.WithCancel(p.scope.Work(), ctxshutdown.WithName("pre-stop"))
	limit := p.config.soft / 2
	ctx, stop := context.WithTimeoutCause(parent, limit, fmt.Errorf("graceful: pre-stop hooks have %v, half of the soft time", limit))
	var running sync.WaitGroup
	for _, hook := range p.config.hooks {
		running.Add(1)
		scope, _ := ctxshutdown.WithCancel(ctx, ctxshutdown.WithName(hook.name))
		started := ctxshutdown.Go(scope, func(ctx context.Context) {
			protect(func() error { return hook.f(ctx) }, func(err error) {
				if err != nil {
					h.add(named(hook.name, err))
				}
				running.Done()
			})
		})
		if !started {
			if p.scope.Work().Err() == nil { // else it is Force, which skips them: nothing has failed
				h.add(named(hook.name, fmt.Errorf("not run: %w", context.Cause(scope))))
			}
			running.Done()
		}
	}
	done := make(chan struct{})
	go func() {
		running.Wait()
		stop()
		cancel()
		close(done)
	}()
	go func() {
		select {
		case <-done:
		case <-ctx.Done():
		}
		close(h.over)
	}()
}

func named(hook string, err error) error {
	if _, ok := err.(*PanicError); ok {
		return err
	}
	return fmt.Errorf("graceful: pre-stop hook %q: %w", hook, err)
}

var errGoexit = errors.New("graceful: the function has ended its goroutine by runtime.Goexit")

// protect calls f and hands on what it returns, or a PanicError.
func protect(f func() error, deliver func(error)) {
	err := errGoexit
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{v, debug.Stack()}
		}
		deliver(err)
	}()
	err = f()
}
