package ctxshutdown

// Interrupts: waking a blocked Read or Write.
//
// Go has no call that interrupts a blocked Read or Write. But connections and some files have
// deadlines, and a deadline in the past makes a blocked call return with a time-out. After that,
// other code can use the source. So the waker must restore the deadline, and must not set one while
// no Read or Write is under way. A call is inside from the method enter of the waker to its method
// leave. These are the cases:
//
//	wake before enter         No call is inside: wake sets no deadline. The call checks the context
//	                          after enter, finds that it has ended, and leaves.
//	wake after enter          wake sets a deadline in the past. The Read returns a time-out, at once if
//	                          it begins later.
//	wake during leave         If leave counts first, no call is inside, and wake sets no deadline.
//	                          Otherwise leave finds woken set, and restores the deadline.
//	several calls inside      All of them return a time-out. The last one restores the deadline.
//	setDeadline after wake    The deadline is stored, and set by the last call that leaves.
//	other code sets a         wake is repeated until the calls have left.
//	deadline after wake       After ten seconds the source is taken to ignore deadlines.

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A waker wakes calls that are blocked in a source or destination with deadlines, by setting a
// deadline in the past. It does so only while a call is inside, which means between enter and
// leave. The last call to leave restores the deadline that the user has set through the wrapper, so
// that the source is unchanged for its next user.
//
//	outside ──enter──▶ inside ──leave──▶ outside
//	                     │ wake             ▲
//	                     └─▶ woken ──leave──┘   deadline restored
//
// A call enters first and then checks whether its context has ended. A wake before enter does
// nothing, and the check finds the end; a wake after enter finds the call inside.
//
// A source without deadlines has a nil waker. The methods enter, leave, canWake and finish of a nil
// waker may be called.
type waker struct {
	ctx context.Context
	set func(time.Time) error // the method SetReadDeadline of the source, or SetWriteDeadline of the destination

	calls      atomic.Int32 // number of Reads or Writes that have called enter and not leave yet
	registered atomic.Bool  // wake is registered with the context; changed under mu
	woken      atomic.Bool  // wake has set a deadline in the past; changed under mu

	mu       sync.Mutex
	deadline time.Time   // the deadline that the user has set
	closed   bool        // finish(true) was called, so no later call of enter registers wake
	stopFunc func() bool // ends the registration with the context; nil if not registered
	again    *time.Timer // the timer that calls wake again; nil until wake is called for the first time
	wakes    int         // how often wake has set a deadline for the calls that have not left yet

	probe        sync.Once // lets canWake set the field works only once
	hasDeadlines bool      // the source accepts deadlines
}

// longAgo is a deadline in the past.
var longAgo = time.Unix(1, 0)

// wakeInterval is the time after which wake is repeated if a call has not returned. A call that has
// not returned after maxWakes has a source that ignores its deadline. If wake were repeated for
// ever, a test in a synctest bubble, whose clock runs while all goroutines wait, would not end.
const (
	wakeInterval = 100 * time.Millisecond
	maxWakes     = 100
)

// enter counts a call that is about to block. From then on, the end of the context wakes the call.
// The caller must check afterwards whether the context has ended already.
func (w *waker) enter() {
	if w == nil {
		return
	}
	w.calls.Add(1)
	if !w.registered.Load() && w.ctx.Err() == nil {
		w.register()
	}
}

// leave stops counting a call that has returned. After a wake, the last call to leave restores the
// deadline that the user has set.
func (w *waker) leave() {
	if w == nil || w.calls.Add(-1) > 0 || !w.woken.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.woken.Load() && w.calls.Load() == 0 {
		w.again.Stop()
		w.wakes = 0
		w.woken.Store(false)
		_ = w.set(w.deadline) // ignore an error: it means that the source has been closed
	}
}

// wake sets a deadline in the past, so that all calls return that are blocked in the source or
// destination. Other code that uses the source may replace this deadline by one of its own. So wake
// sets it again until the calls have returned, but not for ever.
func (w *waker) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	// Set woken before loading the number of calls: a call that leaves after the load then sees
	// that woken is set.
	before := w.woken.Swap(true)
	if w.calls.Load() == 0 || w.set(longAgo) != nil {
		w.woken.Store(before)
		return
	}
	w.wakes++
	switch {
	case w.again == nil:
		w.again = time.AfterFunc(wakeInterval, w.wake)
	case w.wakes < maxWakes:
		w.again.Reset(wakeInterval)
	}
}

// register makes the end of the context call wake.
func (w *waker) register() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopFunc == nil && !w.closed {
		w.stopFunc = context.AfterFunc(w.ctx, w.wake)
		w.registered.Store(true)
	}
}

// finish undoes register, so that the context does not keep the wrapper in memory. If other calls
// have entered and not left, the end of the context must still wake them. So finish then calls
// register again, unless forGood is set. The next call of enter calls register again, too. The
// goroutine that calls finish must have called leave, unless the context has ended.
func (w *waker) finish(forGood bool) {
	if w == nil {
		return
	}
	w.mu.Lock()
	stop := w.stopFunc
	w.stopFunc, w.closed = nil, w.closed || forGood
	w.registered.Store(false)
	w.mu.Unlock()
	if stop != nil {
		stop()
	}
	if w.calls.Load() > 0 { // a call of enter after this check calls register itself
		w.register()
	}
}

// setDeadline sets the deadline that the user asks for.
func (w *waker) setDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	// If calls have been woken, keep the deadline in the past: leave sets the new one when they
	// have returned.
	if !w.woken.Load() {
		if err := w.set(t); err != nil {
			return err
		}
	}
	w.deadline = t
	return nil
}

// canWake reports whether the source accepts deadlines. The first call finds out by setting the
// deadline that the user has set, or none. It is not enough to look for the method SetReadDeadline:
// os.Stdin and regular files have the method, but it returns an error.
func (w *waker) canWake() bool {
	if w == nil {
		return false
	}
	w.probe.Do(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.hasDeadlines = w.woken.Load() || w.set(w.deadline) == nil
	})
	return w.hasDeadlines
}
