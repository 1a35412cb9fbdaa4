package graceful

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// An outcome is how a drain has ended.
type outcome int

const (
	clean     outcome = iota // every guard was released
	cutShort                 // every guard was released, after Work was cancelled
	abandoned                // guards are still held
)

// ErrReturned is the cause of a stop that nobody asked for: f has returned, without an error.
var ErrReturned = errors.New("graceful: the function given to Run has returned")

// A SignalError is the cause of a stop by a signal.
type SignalError struct{ Signal os.Signal }

// Error names the signal.
func (e *SignalError) Error() string { return fmt.Sprintf("graceful: %v signal received", e.Signal) }

// A ForcedError says that the drain was cut short: Work was cancelled, and then every guard was released. Its report is of
// the guards that were held when Work was cancelled, and its Cause is why it was: a [*SignalError], the time, or whatever
// the scope's Force was called with.
type ForcedError struct {
	*ctxshutdown.DrainError
	Err error // what f and the hooks have returned, if anything
}

// Error names the guards that were cut short.
func (e *ForcedError) Error() string {
	return fmt.Sprintf("graceful: drained after force (%s): %v%s", bare(e.Cause), e.Report, and(e.Err))
}

// Unwrap returns the DrainError and Err.
func (e *ForcedError) Unwrap() []error { return unwrap(e.DrainError, e.Err) }

// An AbandonedError says that guards were still held when the last rung was over, or when the last signal came. Whoever
// holds them may still be running: f itself, too, as "main".
type AbandonedError struct {
	*ctxshutdown.DrainError
	Err error // what f and the hooks have returned, if they have
}

// Error names the guards that are still held.
func (e *AbandonedError) Error() string {
	return fmt.Sprintf("graceful: abandoned (%s): %v%s", bare(e.Cause), e.Report, and(e.Err))
}

// Unwrap returns the DrainError and Err.
func (e *AbandonedError) Unwrap() []error { return unwrap(e.DrainError, e.Err) }

// bare is the text of a cause within a sentence of this package.
func bare(cause error) string { return strings.TrimPrefix(cause.Error(), "graceful: ") }

func and(err error) string {
	if err == nil {
		return ""
	}
	return "; also: " + err.Error()
}

func unwrap(d *ctxshutdown.DrainError, err error) []error {
	if err == nil {
		return []error{d}
	}
	return []error{d, err}
}

// A PanicError is what [Run] panics with where f, a hook, or who is told of the run has panicked.
type PanicError struct {
	Value any
	Stack []byte // of the panic
}

// Error has the value, and the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("%v\n\n%s", e.Value, e.Stack) }

// Unwrap returns the value, if that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// ExitCode returns the exit code for what [Run] has returned:
//
//	0  drained
//	1  drained, but f or a hook has failed; also, Run has refused to start
//	2  drained after force
//	3  abandoned
func ExitCode(err error) int {
	var cut *ForcedError
	var left *AbandonedError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &left):
		return 3
	case errors.As(err, &cut):
		return 2
	}
	return 1
}
