package graceful

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"sync/atomic"

	"github.com/swansong-go/swansong/internal/panics"
)

// A PanicError reports a panic. [Run] panics with it after the drain, if the function it runs, a
// pre-stop hook, a function given to [Process.Watch], the logger or the output has panicked. Run
// returns it after the drain, if a panic has stopped an event loop or a pool; see package
// eventloop.
type PanicError struct {
	Name  string // the event loop or pool that the panic has stopped, as in `event loop "ledger"`; otherwise empty
	Value any    // the value of the panic
	Stack []byte // the stack of the panic, in the format of runtime/debug.Stack

	in     string      // the function that panicked, for the log; empty if Run does not log the panic at once
	logged atomic.Bool // whether Run has already logged the panic with its stack
}

// Error returns the value of the panic, followed by the stack unless Run has logged the stack when
// the panic happened. Run logs the stack at once if the panic has stopped an event loop or a pool.
// It also does if the function that it runs or a hook has panicked, and the logger or the output
// could be written to.
func (e *PanicError) Error() string {
	switch {
	case e.Name != "":
		return fmt.Sprintf("graceful: %s: %v", e.headline(), e.Value)
	case e.logged.Load():
		return fmt.Sprintf("%v (the stack was logged when the panic happened)", e.Value)
	}
	return fmt.Sprintf("%v\n\n%s", e.Value, e.Stack)
}

// headline returns the message of a log record about the panic.
func (e *PanicError) headline() string {
	if e.Name != "" {
		return "a panic has stopped the " + e.Name
	}
	return "panic in the " + e.in
}

// Unwrap returns Value if it is an error, and nil otherwise.
func (e *PanicError) Unwrap() error { return panics.Unwrap(e.Value) }

// fail records that a callback has panicked, and stops the process. Run panics with that value at
// its end. If Run has already returned, fail panics.
func (p *Process) fail(err error) {
	failed, ok := err.(*PanicError)
	if !ok {
		failed = &PanicError{Value: err, Stack: debug.Stack()} // the callback called runtime.Goexit, and err is errGoexit
	}
	p.mu.Lock()
	taken := p.panicTaken
	if !taken && p.callbackPanic == nil {
		p.callbackPanic = failed
	}
	p.mu.Unlock()
	if taken {
		panic(failed)
	}
	p.stopAfterPanic(failed)
}

// takePanic returns the panic of a callback that Run must raise, or nil. If a callback panics after
// this call, fail raises that panic.
func (p *Process) takePanic() *PanicError {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.panicTaken = true
	return p.callbackPanic
}

// loopPanicked records that a panic has stopped an event loop or a pool, logs it and stops the
// process. Run returns the panic. Package eventloop finds loopPanicked in the context, under the
// key ctxkey.Panicked. The function does not block, because package eventloop may call it on any
// goroutine.
func (p *Process) loopPanicked(who string, value any, stack []byte) {
	failed := &PanicError{Name: who, Value: value, Stack: stack}
	p.mu.Lock()
	taken := p.loopPanicsTaken
	if !taken {
		p.loopPanics = append(p.loopPanics, failed)
	}
	p.mu.Unlock()
	if taken {
		// The result of Run is known already, so only a crash can still report the panic. Panic on
		// a new goroutine, because the caller might recover a panic on this one.
		go panic(failed)
		return
	}
	p.logPanic(failed)
	p.stopAfterPanic(failed)
}

// logPanicIn logs err if err is a panic, with the name of the function that panicked. Run raises
// the panic after the drain.
func (p *Process) logPanicIn(in string, err error) {
	if e, ok := err.(*PanicError); ok {
		e.in = in
		p.logPanic(e)
	}
}

// logPanic logs a panic while the process still drains, because the drain may never end. logPanic
// does not block. Before Run returns, Run waits until the panic has been written.
func (p *Process) logPanic(e *PanicError) {
	done := make(chan struct{})
	p.mu.Lock()
	p.logged = append(p.logged, done)
	p.mu.Unlock()
	go catchPanic(func() error {
		written, err := p.writePanic(e)
		e.logged.Store(written && err == nil)
		return err
	}, func(err error) {
		defer close(done)
		if _, ok := err.(*PanicError); ok || err == errGoexit {
			p.fail(err)
		}
	})
}

// logsErrors reports whether there is a logger that is enabled for the level Error.
func (p *Process) logsErrors() bool {
	return p.config.logger != nil && p.config.logger.Enabled(context.Background(), slog.LevelError)
}

// writePanic writes e to the logger, or to the output if there is no logger that is enabled for
// errors. It returns false if it writes to the output and that is io.Discard.
func (p *Process) writePanic(e *PanicError) (written bool, err error) {
	if p.logsErrors() {
		p.config.logger.LogAttrs(context.Background(), slog.LevelError, e.headline(),
			slog.String("panic", fmt.Sprint(e.Value)), slog.String("stack", string(e.Stack)))
		return true, nil
	}
	_, err = fmt.Fprintf(p.config.output, "graceful: %s: %v\n\n%s\n", e.headline(), e.Value, e.Stack)
	return p.config.output != io.Discard, err
}

// takeLoopPanics returns an error with the panics that have stopped event loops and pools, or nil.
// A panic after this call ends the program.
func (p *Process) takeLoopPanics() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loopPanicsTaken = true
	if len(p.loopPanics) == 1 {
		return p.loopPanics[0] // a single error is not passed to errors.Join, which would wrap it
	}
	var all []error
	for _, e := range p.loopPanics {
		all = append(all, e)
	}
	return errors.Join(all...)
}

// stopAfterPanic tells Run to stop the process, unless an earlier panic has done so.
func (p *Process) stopAfterPanic(e *PanicError) {
	select {
	case p.panics <- e:
	default:
	}
}

// print writes to the output that the user has configured, whose Write method may panic.
func (r *run) print(text string) {
	done := make(chan struct{})
	go catchPanic(func() error {
		io.WriteString(r.config.output, text)
		return nil
	}, func(err error) {
		defer close(done)
		if err != nil {
			r.fail(err)
		}
	})
	<-done
}
