package graceful

import "sync/atomic"

// A handover passes the error of f, the function given to Run, to the goroutine of Run, unless Run
// has stopped waiting for f. Without the handover, f could panic between the last time that Run
// checks for a panic and the return of Run; then no goroutine would raise that panic. An
// atomic swap decides whether f ends first or Run stops waiting first.
type handover struct {
	result chan error // buffered, so that the method give does not block
	closed atomic.Bool
}

// give passes the error of f, the function given to Run, to Run. It returns false if Run no longer
// waits for f.
func (h *handover) give(err error) bool {
	if h.closed.Swap(true) {
		return false
	}
	h.result <- err
	return true
}

// close makes later calls of give return false. If give was called before, close returns the error
// that give has passed.
func (h *handover) close() (error, bool) {
	if !h.closed.Swap(true) {
		return nil, false
	}
	// The method give has set closed, and sends the error right after that. So this receive
	// does not block for long.
	return <-h.result, true
}
