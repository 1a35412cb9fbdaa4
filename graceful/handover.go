package graceful

import "sync/atomic"

// A handover passes the error of f to Run, unless Run has stopped waiting for f. Without it, f
// could panic after Run has checked for a panic for the last time and before Run returns; then
// neither goroutine would raise that panic. An atomic swap decides which of the two happens first.
type handover struct {
	result chan error // has room for one error
	closed atomic.Bool
}

// give passes the error of f to Run. It returns false if Run no longer waits for f.
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
	return <-h.result, true // give sends the error right after the swap, so this does not block for long
}
