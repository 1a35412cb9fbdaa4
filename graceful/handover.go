package graceful

import "sync/atomic"

// A handover is how Run gets to know what f has returned, as long as it waits for that. Who is first, f or the end of Run, is
// decided by one swap: were it looked at first and said then, a panic in between would be raised by neither.
type handover struct {
	result chan error // holds one
	over   atomic.Bool
}

// give hands over what f has returned. It reports false if nobody is there any more to take it.
func (h *handover) give(err error) bool {
	if h.over.Swap(true) {
		return false
	}
	h.result <- err
	return true
}

// last takes what was given, for Run that waits no longer. It reports false if f has not returned; give will, too, then.
func (h *handover) last() (error, bool) {
	if !h.over.Swap(true) {
		return nil, false
	}
	return <-h.result, true // which is there, or just about to be
}
