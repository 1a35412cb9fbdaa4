package ctxshutdown

// Interrupts: waking a blocked Read or Write.
//
// Go has no call that interrupts a blocked Read or Write. But connections and some files have
// deadlines, and a deadline in the past makes a blocked call return with a time-out. After that,
// other code can use the source. So the waker must restore the deadline, and must not set one while
// no call is inside. These are the cases:
//
//	wake before enter         No call is inside: wake sets no deadline. The call checks the context
//	                          after enter, finds that it has ended, and leaves.
//	wake after enter          wake sets a deadline in the past. The Read returns a time-out, at once if
//	                          it begins later.
//	wake during leave         If leave counts first, no call is inside, and wake sets no deadline.
//	                          Otherwise leave finds the flag wakeCalled and restores the deadline.
//	several calls inside      All of them return a time-out. The last one restores the deadline.
//	setDeadline after wake    The deadline is stored, and set by the last call that leaves.

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A waker wakes calls that are blocked in a source or destination with deadlines, by setting a
// deadline in the past. It does so only while a call is inside. The last call to leave restores the
// deadline that the user has set through the wrapper, so that the source is unchanged for its next
// user.
//
//	outside ──enter──▶ inside ──leave──▶ outside
//	                     │ wake             ▲
//	                     └─▶ woken ──leave──┘   deadline restored
//
// A call enters first and then checks whether its context has ended. A wake before enter does
// nothing, and the check finds the end; a wake after enter finds the call inside.
//
// A source without deadlines has a nil waker. The methods canWake, finish and close of a nil waker
// may be called.
type waker struct {
	ctx context.Context
	set func(time.Time) error // SetReadDeadline or SetWriteDeadline

	calls atomic.Uint64 // number of calls inside, plus the flags registered and wakeCalled

	mu         sync.Mutex
	deadline   time.Time   // the deadline that the user has set
	woken      bool        // wake has set a deadline in the past
	closed     bool        // close was called; prevents that a later call registers
	stopFunc   func() bool // ends the registration with the context; nil if not registered
	capability atomic.Int32
}

// Flags in waker.calls, above the number of calls.
const (
	registered = 1 << 61 // wake is registered with the context
	wakeCalled = 1 << 62 // wake has been called
	callFlags  = registered | wakeCalled
)

// onFastPath reports whether registered is set and wakeCalled is not, in one comparison. Then enter
// and leave only count the call.
func onFastPath(calls uint64) bool { return calls-registered < wakeCalled-registered }

// Values of waker.capability. The method canWake finds out by setting a deadline. It is not enough
// to look for the method SetReadDeadline: os.Stdin and regular files have the method, but it
// returns an error.
const (
	unknown = iota
	supported
	unsupported
)

// longAgo is a deadline in the past.
var longAgo = time.Unix(1, 0)

// enter counts a call that is about to block, which the end of the context wakes from now on. The
// caller must check afterwards whether the context has ended already.
func (w *waker) enter() {
	if !onFastPath(w.calls.Add(1)) && w.ctx.Err() == nil {
		w.register()
	}
}

// leave counts a call that has returned.
func (w *waker) leave() {
	if !onFastPath(w.calls.Add(^uint64(0))) {
		w.restoreDeadline()
	}
}

// restoreDeadline sets the deadline of the user after a wake, if no call is inside.
func (w *waker) restoreDeadline() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.woken && w.calls.Load()&^callFlags == 0 {
		w.woken = false
		_ = w.set(w.deadline) // fails if the source has been closed
	}
}

// wake makes all calls that are blocked in the source or destination return.
func (w *waker) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	inside := w.calls.Or(wakeCalled) &^ callFlags
	if inside > 0 && !w.woken && w.capability.Load() != unsupported {
		w.woken = w.set(longAgo) == nil
	}
}

// register makes the end of the context call wake.
func (w *waker) register() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopFunc == nil && !w.closed {
		w.stopFunc = context.AfterFunc(w.ctx, w.wake)
		w.calls.Or(registered)
	}
}

// finish undoes register, unless other calls are inside and must still be woken. The next call
// registers again. The calling goroutine must have left, unless the context has ended.
func (w *waker) finish() {
	if w == nil {
		return
	}
	w.unregister(false)
	if w.calls.Load()&^callFlags > 0 { // calls that enter after this check register by themselves
		w.register()
	}
}

// close undoes register for good.
func (w *waker) close() {
	if w != nil {
		w.unregister(true)
	}
}

// unregister undoes register, so that the context does not keep the wrapper in memory.
func (w *waker) unregister(forGood bool) {
	w.mu.Lock()
	w.closed = w.closed || forGood
	stop := w.stopFunc
	w.stopFunc = nil
	w.calls.And(^uint64(registered))
	w.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// setDeadline sets the deadline that the user asks for.
func (w *waker) setDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.woken { // after a wake, restoreDeadline sets the deadline
		if err := w.set(t); err != nil {
			return err
		}
	}
	w.deadline = t
	return nil
}

// canWake reports whether the source accepts deadlines. The first call finds out by setting the
// deadline that the user has set, or none.
func (w *waker) canWake() bool {
	if w == nil {
		return false
	}
	if c := w.capability.Load(); c != unknown {
		return c == supported
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c := int32(supported)
	if !w.woken && w.set(w.deadline) != nil {
		c = unsupported
	}
	w.capability.Store(c)
	return c == supported
}
