package eventloop

import (
	"errors"
	"reflect"
	"runtime"
	"strings"
)

// ErrInCallback is returned at once by methods that wait for a loop or a pool, if a callback of a loop
// calls them while there is something to wait for. The loop could run nothing meanwhile, and a wait
// for itself would never end.
var ErrInCallback = errors.New("eventloop: a callback, timer, completion or init function of a loop must not wait for a loop or a pool; " +
	"wait on another goroutine, and post to the loop when the wait is over")

// runPrefix is what the names of the methods that call the user's functions begin with: runInit,
// runCallbacks and runTimers.
var runPrefix = reflect.TypeFor[loop]().PkgPath() + ".(*loop).run"

// checkWait returns ErrInCallback if the calling goroutine is that of a loop. It looks for the loop's
// methods among the callers, because callbacks have no parameter that could tell, and the state of a
// loop does not tell which goroutine asks. This takes about a microsecond, and so is done only before a wait.
//
// It does not tell loops apart: a callback must not wait for another loop either, since that blocks its
// own.
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
