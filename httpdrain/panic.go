package httpdrain

import (
	"fmt"

	"github.com/swansong-go/swansong/internal/unwind"
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

// protect calls f, on a goroutine of its own, which is all that a Goexit ends. The first panic is kept for Serve.
func (d *drain) protect(option string, f func()) {
	done := make(chan *PanicError)
	go unwind.Catch(f, func(value any, stack []byte) {
		if value == nil {
			done <- nil
		} else {
			done <- &PanicError{option, value, stack}
		}
	})
	if failed := <-done; d.failed == nil {
		d.failed = failed
	}
}
