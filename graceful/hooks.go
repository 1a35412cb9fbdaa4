package graceful

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/panics"
)

// A hook is a function passed to WithPreStop, with its name.
type hook struct {
	name string
	f    func(ctx context.Context) error
}

// WithPreStop adds a function that runs at the beginning of [Soft], before the root scope is shut
// down, for example to deregister from service discovery.
//
// All hooks run concurrently. They have half of the soft time, so that the other half is left for
// the drain. Their context ends when that time is over or a signal leads to the next phase;
// Shutdown then no longer waits for them. The drain does: a hook holds a guard of the scope
// "pre-stop/name" until it returns. If Force skips the Soft phase, hooks that have not started are
// not called, which is not an error.
//
// The error of a hook becomes part of the error of [Run]. A panic of a hook is treated like a panic
// of the function that Run runs.
func WithPreStop(name string, f func(ctx context.Context) error) Option {
	return option(func(c *config) error {
		if f == nil {
			return fmt.Errorf("graceful: WithPreStop(%q, nil): the function must not be nil", name)
		}
		c.hooks = append(c.hooks, hook{name, f})
		return nil
	})
}

// hooks contains the pre-stop hooks that a run has started.
type hooks struct {
	done chan struct{} // closed when Shutdown no longer has to wait for the hooks

	mu     sync.Mutex
	errors []error
	closed bool // close was called, so Run does not return the errors of hooks that end later
}

func (h *hooks) add(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p, ok := err.(*PanicError); ok && h.closed {
		panic(p) // Run has returned and cannot raise this panic any more
	}
	h.errors = append(h.errors, err)
}

// close returns the errors of the hooks that have failed so far. Run calls it when it stops waiting
// for hooks.
func (h *hooks) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	return errors.Join(h.errors...)
}

// startHooks starts the hooks. Their scopes derive from Work of the root scope and not from the
// root scope itself, because hooks must run even if the root scope has been shut down already.
func (p *Process) startHooks(h *hooks) {
	parent, cancel := ctxshutdown.WithCancel(p.scope.Work(), ctxshutdown.WithName("pre-stop"))
	limit := p.config.soft / 2
	ctx, stop := context.WithTimeoutCause(parent, limit, fmt.Errorf("the time for pre-stop hooks is over: %v, half of the soft time", limit))
	var running sync.WaitGroup
	for _, hook := range p.config.hooks {
		running.Add(1)
		scope, _ := ctxshutdown.WithCancel(ctx, ctxshutdown.WithName(hook.name))
		started := ctxshutdown.Go(scope, func(ctx context.Context) {
			catchPanic(func() error { return hook.f(ctx) }, func(err error) {
				p.logPanicIn(fmt.Sprintf("pre-stop hook %q", hook.name), err)
				if err != nil {
					h.add(hookError(hook.name, err))
				}
				running.Done()
			})
		})
		if !started {
			if p.scope.Work().Err() == nil { // after Force, the hooks are skipped
				h.add(hookError(hook.name, fmt.Errorf("not run: %w", context.Cause(scope))))
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
		close(h.done)
	}()
}

func hookError(hook string, err error) error {
	if _, ok := err.(*PanicError); ok {
		return err
	}
	return fmt.Errorf("graceful: pre-stop hook %q: %w", hook, err)
}

var errGoexit = errors.New("graceful: the function called runtime.Goexit")

// catchPanic calls f and passes an error to deliver: the error that f returned, a [PanicError] if f
// panicked, or errGoexit if f called runtime.Goexit.
func catchPanic(f func() error, deliver func(error)) {
	var err error
	panics.Catch(func() { err = f() }, func(value any, stack []byte) {
		switch value {
		case nil:
		case panics.ErrGoexit:
			err = errGoexit
		default:
			err = &PanicError{Value: value, Stack: stack}
		}
		deliver(err)
	})
}
