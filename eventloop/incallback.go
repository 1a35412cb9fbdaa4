package eventloop

import (
	"errors"
	"reflect"
	"runtime"
	"strings"
)

// ErrInCallback is returned at once by methods that wait for a loop or a pool, if a callback of a
// loop calls them while there is something to wait for. While a callback waits, its loop runs
// nothing, so a wait for this loop would never end.
var ErrInCallback = errors.New("eventloop: a callback, timer, completion or init function of a loop must not wait for a loop or a pool; " +
	"wait on another goroutine, and post to the loop when the wait is over")

// runPrefix is the common prefix of the names of the methods that call the user's functions:
// runInit, runCallbacks and runTimers.
var runPrefix = reflect.TypeFor[loop]().PkgPath() + ".(*loop).run"

// checkWait returns ErrInCallback if the calling goroutine is that of a loop. It looks for the
// loop's methods among the callers, because callbacks have no parameter that identifies their loop,
// and the state of a loop does not show which goroutine has called checkWait. The search takes
// about a microsecond, so it is done only before a wait.
//
// checkWait does not distinguish loops: a callback must not wait for another loop either, because
// the wait blocks the callback's own loop.
func checkWait() error {
	pcs := make([]uintptr, 64)
	for n := runtime.Callers(2, pcs); ; n = runtime.Callers(2, pcs) {
		if n < len(pcs) {
			pcs = pcs[:n]
			break
		}
		pcs = make([]uintptr, 2*len(pcs))
	}
	frames := runtime.CallersFrames(pcs)
	for more := len(pcs) > 0; more; {
		var f runtime.Frame
		if f, more = frames.Next(); strings.HasPrefix(f.Function, runPrefix) {
			return ErrInCallback
		}
	}
	return nil
}
