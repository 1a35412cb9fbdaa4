package eventloop

import (
	"fmt"
	"os"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/ctxkey"
	"github.com/swansong-go/swansong/internal/panics"
)

// A PanicError reports a panic in a function that a loop or a pool called, and from which it has
// recovered.
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
// calls the panic handler, which may call runtime.Goexit itself. If there is no panic handler, it
// ends the program. The callback counts as running until the panic handler has returned.
func (l *loop) handlePanic(value any) {
	in := "callback"
	if l.box.running == "timer" {
		in = "timer"
	}
	defer func() {
		switch {
		case l.crashing:
		case in == "timer":
			l.resumeTimers()
		default:
			l.countExecuted()
		}
	}()
	l.stats.panics.Add(1)
	if value == nil && l.panicked.Load() {
		return // the first Goexit has stopped the loop; capturing the stack of a further one is slow and not needed
	}
	err := newPanicError(in, value)
	l.recordFailure(err)
	switch {
	case value == nil: // the callback has called runtime.Goexit
		l.abort(err)
	case l.onPanic == nil:
		l.crash(err)
	case !l.callPanicHandler(err):
		l.abort(err)
	}
}

// crash ends the program with the panic err, as a panic in any goroutine does: it panics again on
// the stack on which the panic began. It first prints how many callbacks, timers and offloads the
// loop has not finished. The loop releases no guard, so that no goroutine that waits for it takes
// the drain for complete and ends the program with exit code 0.
func (l *loop) crash(err *PanicError) {
	l.crashing = true
	c := l.counts()
	if err.In == "callback" {
		c.Queued-- // the callback that has panicked was not lost: it has begun
	}
	fmt.Fprintf(os.Stderr, "eventloop: panic in a %s of the event loop %q; callbacks not run: %d, timers not fired: %d, offloads not finished: %d\n",
		err.In, l.name, c.Queued, c.Timers, c.Offloads)
	panic(err.Value)
}

// abort stops the loop because of a panic or Goexit.
func (l *loop) abort(err *PanicError) {
	first := !l.panicked.Swap(true)
	l.stop(err)
	if first {
		stoppedByPanic(l.scope, "event loop", l.name, err)
	}
}

func (l *loop) recordFailure(err error) { l.failure.CompareAndSwap(nil, &err) }

// stoppedByPanic tells package graceful that err has stopped a loop or a pool. It does nothing if
// the scope does not come from graceful.Run.
func stoppedByPanic(scope *ctxshutdown.Swansong, what, name string, err *PanicError) {
	if tell, ok := scope.Value(ctxkey.Panicked{}).(func(who string, value any, stack []byte)); ok {
		tell(fmt.Sprintf("%s %q", what, name), err.Value, err.Stack)
	}
}

// resumeTimers makes the loop continue with its timers after a timer function has panicked. At that
// point the flag timers.due is still set, and the loop's runtime timer is not. resumeTimers wakes
// the loop, which then runs waiting callbacks before the next timer. If it called runTimers itself,
// timers that panic could keep callbacks from running.
func (l *loop) resumeTimers() {
	l.box.setRunning("")
	l.box.wake()
}

// callPanicHandler calls the panic handler, and returns whether the loop continues. If the handler
// panics or calls runtime.Goexit, callPanicHandler stops the loop.
func (l *loop) callPanicHandler(err *PanicError) (resume bool) {
	returned := false
	defer func() {
		if !returned {
			l.stats.panics.Add(1)
			l.recordFailure(newPanicError("panic handler", recover()))
			l.abort(err)
			resume = true // abort has stopped the loop, so the caller need not stop it
		}
	}()
	resume = l.onPanic(err)
	returned = true
	return resume
}
