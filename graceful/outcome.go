package graceful

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// An outcome is how a drain ended.
type outcome int

const (
	clean     outcome = iota // every guard was released, without a Force
	cutShort                 // every guard was released, but only after Force was called
	abandoned                // guards were still held when Run returned
)

// ErrReturned is the cause of a stop that happened because f, the function given to [Run], returned
// without an error.
var ErrReturned = errors.New("graceful: the function given to Run has returned")

// A SignalError is the cause of a stop that a signal requested.
type SignalError struct{ Signal os.Signal }

// Error names the signal.
func (e *SignalError) Error() string { return fmt.Sprintf("graceful: %v signal received", e.Signal) }

// A ForcedError reports that Work was cancelled before all guards had been released, and that they
// were released afterwards. Its report lists the guards that were held when Work was cancelled. Its
// Cause is the reason: a [*SignalError], an expired phase, or the cause passed to Force.
type ForcedError struct {
	*ctxshutdown.DrainError
	Err error // the errors of the function given to Run and of the hooks, or nil
}

// Error names the guards that were held when Work was cancelled.
func (e *ForcedError) Error() string {
	return fmt.Sprintf("graceful: drained after force (%s): %s", withoutPrefix(e.Cause), reportAndError(e.Report, e.Err))
}

// Unwrap returns the DrainError and Err.
func (e *ForcedError) Unwrap() []error { return joinErrors(e.DrainError, e.Err) }

// An AbandonedError reports that guards were still held when the last phase ended or the last
// signal came. The goroutines that hold these guards may still be running; the guard of the scope
// "main" belongs to f, the function given to [Run]. If no scope is traced, Stacks has the stacks of
// all goroutines that run a function that the program has passed to this module, such as f, a
// handler, a job or a callback.
type AbandonedError struct {
	*ctxshutdown.DrainError
	Err error // the errors of the function given to Run and of the hooks that have returned, or nil
}

// Error names the guards that are still held.
func (e *AbandonedError) Error() string {
	return fmt.Sprintf("graceful: abandoned (%s): %s", withoutPrefix(e.Cause), reportAndError(e.Report, e.Err))
}

// Unwrap returns the DrainError and Err.
func (e *AbandonedError) Unwrap() []error { return joinErrors(e.DrainError, e.Err) }

// withoutPrefix returns the text of a cause without the prefix "graceful: ", for use within a
// message of this package.
func withoutPrefix(cause error) string { return strings.TrimPrefix(cause.Error(), "graceful: ") }

// maxRequests is the number of requests, the oldest of a report, that reportAndError compares with
// an error.
const maxRequests = 10

// reportAndError returns the text of the report followed by the text of err, unless err is nil. An
// error of httpdrain.Serve lists the oldest requests that Serve has cut, so reportAndError leaves
// these requests out of the report. Those of the ten oldest requests that err does not mention stay
// in the report. They belong to other servers whose errors are lost: errgroup, for example, returns
// only the first error.
func reportAndError(r ctxshutdown.GuardReport, err error) string {
	if err == nil {
		return r.String()
	}
	text, _, _ := strings.Cut(r.String(), "; requests: ")
	before := "; oldest requests: "
	requests := r.Requests()
	for _, q := range requests[:min(len(requests), maxRequests)] {
		if !strings.Contains(err.Error(), q.Request+" for ") {
			text += fmt.Sprintf("%s%s for %v", before, q.Request, q.Age.Round(time.Millisecond))
			before = ", "
		}
	}
	return text + "; also: " + err.Error()
}

func joinErrors(d *ctxshutdown.DrainError, err error) []error {
	if err == nil {
		return []error{d}
	}
	return []error{d, err}
}

// ExitCode returns the exit code for an error of [Run]:
//
//	0  drained
//	1  drained, but the function given to Run or a hook has failed, or a panic has stopped an
//	   event loop or a pool; or Run has not called the function
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
