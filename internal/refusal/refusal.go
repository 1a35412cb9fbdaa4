// Package refusal has the errors that say nothing but that work was not begun, because its scope had been told to stop. In a
// program that is told to stop while it is starting that is no failure, and package graceful has to tell it from one.
package refusal

import (
	"errors"
	"fmt"
	"reflect"
)

type refusal struct {
	text  string
	cause error
}

func (r *refusal) Error() string { return r.text + ": " + r.cause.Error() }
func (r *refusal) Unwrap() error { return r.cause }

// New returns the error of something that was not begun, by the cause of the stop.
func New(cause error, format string, args ...any) error {
	return &refusal{fmt.Sprintf(format, args...), cause}
}

// Says reports whether err says nothing but that: it is the cause itself, or a refusal for it, be it in other words around
// it. An error that is joined with others says more, and so does what wraps the cause by itself, as a failure to drain does.
func Says(err, cause error) bool {
	if Same(err, cause) {
		return true
	}
	for ; err != nil; err = errors.Unwrap(err) {
		if r, ok := err.(*refusal); ok {
			return Same(r.cause, cause)
		}
	}
	return false
}

// Same is == for errors, which need not be comparable.
func Same(a, b error) bool { return reflect.ValueOf(a).Comparable() && a == b }
