package eventloop

import (
	"fmt"

	"github.com/swansong-go/swansong/internal/panics"
)

// A PanicError reports a panic in a function that a loop or a pool called. The loop or pool has
// recovered from it.
type PanicError struct {
	// In is the kind of function that panicked: "callback", "timer", "init", "main", "offload",
	// "job" or "panic handler".
	In    string
	Value any    // the value of the panic, or [ErrGoexit]
	Stack []byte // the stack of the panic, in the format of runtime/debug.Stack
}

// ErrGoexit is the Value of a [PanicError] for a function that called [runtime.Goexit] instead of
// panicking. The FailNow method of a test does that.
var ErrGoexit = panics.ErrGoexit

// Error returns the kind of function and the value, without the stack.
func (e *PanicError) Error() string {
	return fmt.Sprintf("eventloop: panic in a function of the kind %q: %v", e.In, e.Value)
}

// Unwrap returns Value if it is an error, and nil otherwise.
func (e *PanicError) Unwrap() error { return panics.Unwrap(e.Value) }

// newPanicError returns the error for a function that panicked or called runtime.Goexit, given the
// result of recover. See [panics.Recovered] for where it may be called.
func newPanicError(in string, recovered any) *PanicError {
	value, stack := panics.Recovered(recovered)
	return &PanicError{In: in, Value: value, Stack: stack}
}

// handlePanic handles a callback that has panicked with value, or has called runtime.Goexit. It
// calls the panic handler, which may call runtime.Goexit itself. The callback counts as running
// until the panic handler has returned.
func (l *Loop) handlePanic(value any) {
	in := "callback"
	if l.box.running == "timer" {
		in = "timer"
		defer l.resumeTimers()
	} else {
		defer l.countExecuted()
	}
	err := newPanicError(in, value)
	l.stats.panics.Add(1)
	l.recordFailure(err)
	if value != nil && l.onPanic != nil {
		l.callPanicHandler(err)
	} else {
		l.abort(err)
	}
}

// resumeTimers makes the loop continue with its timers after a timer function has panicked. At that
// point the flag due is set and no alarm is armed. resumeTimers wakes the loop instead of calling
// runTimers, so that panicking timers cannot keep callbacks from running.
func (l *Loop) resumeTimers() {
	l.box.setRunning("")
	l.box.wake()
}

// callPanicHandler calls the panic handler. If the handler panics or calls runtime.Goexit, the loop
// is stopped.
func (l *Loop) callPanicHandler(err *PanicError) {
	returned := false
	defer func() {
		if !returned {
			l.stats.panics.Add(1)
			l.recordFailure(newPanicError("panic handler", recover()))
			l.abort(err)
		}
	}()
	l.onPanic(err)
	returned = true
}
