package ctxshutdown

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A waker wakes calls that block in something with deadlines, by setting one that is over. It does so only while a
// call is inside, and the last call to leave puts back the deadline that the user has set through the wrapper: so the
// next owner finds the source as it was.
//
//	outside ──enter──▶ inside ──leave──▶ outside
//	                     │ wake             ▲
//	                     └─▶ woken ──leave──┘   deadline put back
//
// A call enters first and looks at its context then: a wake that came before saw nobody inside, and one that comes after
// wakes it.
type waker struct {
	set func(time.Time) error // SetReadDeadline or SetWriteDeadline

	calls atomic.Uint64 // inside, and marks

	mu       sync.Mutex
	deadline time.Time   // the user's
	over     bool        // the deadline of the source is one that is over
	undo     func() bool // ends the registration with the context; nil where there is none
	ability  atomic.Int32
}

// Marks beside the number of the calls that are inside.
const (
	registered = 1 << 61 // with the context, whose end wakes
	wakened    = 1 << 62 // somebody has tried to wake
	marks      = registered | wakened
)

// usual reports whether a call has nothing more to do: registered, and not wakened, in one comparison.
func usual(calls uint64) bool { return calls-registered < wakened-registered }

// What is known of a source's deadlines. Having the method proves nothing: os.Stdin and regular files refuse.
const (
	unknown = iota
	able
	unable
)

// longAgo is over, whatever the clock says.
var longAgo = time.Unix(1, 0)

// enter notes that a call is about to block, and has it woken when ctx ends.
func (w *waker) enter(ctx context.Context) {
	if !usual(w.calls.Add(1)) {
		w.register(ctx)
	}
}

// leave notes that a call has returned.
func (w *waker) leave() {
	if !usual(w.calls.Add(^uint64(0))) {
		w.left()
	}
}

// left puts back the deadline where the last call has left and one that is over was set.
func (w *waker) left() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over && w.calls.Load()&^marks == 0 {
		w.over = false
		_ = w.set(w.deadline) // fails where the source has been closed
	}
}

// wake makes the calls that are inside return.
func (w *waker) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	inside := w.calls.Or(wakened) &^ marks
	if inside > 0 && !w.over && w.ability.Load() != unable {
		w.over = w.set(longAgo) == nil
	}
}

func (w *waker) register(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.undo == nil {
		w.undo = context.AfterFunc(ctx, w.wake)
		w.calls.Or(registered)
	}
}

// release forgets the context, unless it has calls to wake: when one of many ends, the others still rely on the
// registration. The next call to enter registers again.
func (w *waker) release(ctx context.Context) {
	w.forget()
	if w.calls.Load()&^marks > 0 { // looked at after: whoever comes in now registers for itself
		w.register(ctx)
	}
}

// forget forgets the context.
func (w *waker) forget() {
	if w.calls.Load()&registered == 0 {
		return // or somebody is about to, and asks when leaving whether that was right
	}
	w.mu.Lock()
	undo := w.undo
	w.undo = nil
	w.calls.And(^uint64(registered))
	w.mu.Unlock()
	if undo != nil {
		undo()
	}
}

// setDeadline sets the user's deadline.
func (w *waker) setDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over { // else the last one to leave sets it
		if err := w.set(t); err != nil {
			return err
		}
	}
	w.deadline = t
	return nil
}

// canWake finds out whether the source accepts deadlines, by setting the user's.
func (w *waker) canWake() bool {
	if a := w.ability.Load(); a != unknown {
		return a == able
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	a := int32(able)
	if !w.over && w.set(w.deadline) != nil {
		a = unable
	}
	w.ability.Store(a)
	return a == able
}
