package httpdrain

import (
	"errors"
	"fmt"
	runtimedebug "runtime/debug"
)

// A PanicError says that something that [Serve] was given as an option has panicked, or ended its goroutine by
// runtime.Goexit. It keeps nothing from being drained, or cut; Serve returns it in the end, with whatever else it returns.
// Handlers and hooks of the http.Server are net/http's to call, and their panics its own, as they are without this package.
type PanicError struct {
	Option string // "WithRoute" or "WithLogger"
	Value  any    // what it panicked with; an error that says so where it was runtime.Goexit
	Stack  []byte // where, as of runtime/debug.Stack
}

// Error has all but the stack.
func (e *PanicError) Error() string {
	return fmt.Sprintf("httpdrain: panic in what %s was given: %v", e.Option, e.Value)
}

// Unwrap returns the value, if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

var errGoexit = errors.New("it ended its goroutine by runtime.Goexit")

// protect calls f, on a goroutine of its own, which is all that a Goexit ends. The first panic is kept for Serve.
func (d *drain) protect(option string, f func()) {
	done := make(chan *PanicError)
	go func() {
		var failed *PanicError
		returned := false
		defer func() {
			if !returned {
				value := recover()
				if value == nil {
					value = errGoexit
				}
				failed = &PanicError{option, value, runtimedebug.Stack()}
			}
			done <- failed
		}()
		f()
		returned = true
	}()
	if failed := <-done; d.failed == nil {
		d.failed = failed
	}
}
