// Package refusal defines the error for work that was not started because its scope had already
// been stopped. A program that is stopped while it starts up sees such an error, and package
// graceful must not report it as a failure.
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

// New returns an error for work that was not started because its scope was stopped with cause.
// It wraps cause.
func New(cause error, format string, args ...any) error {
	return &refusal{fmt.Sprintf(format, args...), cause}
}

// Is reports whether err only means "not started because of cause": err is cause itself, or an
// error from [New] for cause, possibly wrapped. It is false for an error that joins several errors,
// and for any other error that wraps cause, such as a failure to drain: such errors carry further
// information. An error that joins only one error, as errors.Join(err, nil) does, counts as that
// error.
func Is(err, cause error) bool {
	for {
		joined, ok := err.(interface{ Unwrap() []error })
		if !ok || len(joined.Unwrap()) != 1 {
			break
		}
		err = joined.Unwrap()[0]
	}
	if Equal(err, cause) {
		return true
	}
	for ; err != nil; err = errors.Unwrap(err) {
		if r, ok := err.(*refusal); ok {
			return Equal(r.cause, cause)
		}
	}
	return false
}

// Equal reports whether a == b. It is false for errors that cannot be compared.
func Equal(a, b error) bool { return reflect.ValueOf(a).Comparable() && a == b }
