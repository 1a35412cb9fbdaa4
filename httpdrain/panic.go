package httpdrain

import (
	"fmt"

	"github.com/swansong-go/swansong/internal/panics"
)

// A PanicError reports that a function or logger given to [Serve] as an option panicked or called
// [runtime.Goexit]. The drain continues. When it has ended, Serve returns the first PanicError,
// joined with its other errors.
//
// Panics in handlers and hooks of the http.Server are handled by net/http, as without this package.
type PanicError struct {
	Option string // "WithRoute" or "WithLogger"
	Value  any    // the value of the panic, or an error that says that runtime.Goexit was called
	Stack  []byte // the stack of the panic, in the format of runtime/debug.Stack
}

// Error returns a message with the option and the value, without the stack.
func (e *PanicError) Error() string {
	return fmt.Sprintf("httpdrain: panic in the function passed to %s: %v", e.Option, e.Value)
}

// Unwrap returns Value if it is an error, and nil otherwise.
func (e *PanicError) Unwrap() error { return panics.Unwrap(e.Value) }

// protect calls f. If f panics or calls runtime.Goexit, and no earlier call did, protect records
// that in d.panicErr. f runs on a new goroutine, so that Goexit does not end the goroutine that
// called Serve. The caller must not hold d.mu.
func (d *drain) protect(option string, f func()) {
	done := make(chan *PanicError)
	go panics.Catch(f, func(value any, stack []byte) {
		if value == nil {
			done <- nil
		} else {
			done <- &PanicError{option, value, stack}
		}
	})
	err := <-done
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.panicErr == nil {
		d.panicErr = err
	}
}

// firstPanic returns the first panic of a function of the user, or nil.
func (d *drain) firstPanic() *PanicError {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.panicErr
}
