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
// A call enters first and looks at its context again then: a wake that came before saw nobody inside, and one that
// comes after wakes it.
type waker struct {
	set func(time.Time) error // SetReadDeadline or SetWriteDeadline

	calls atomic.Int64 // inside, plus wakened once somebody has tried to wake
	hook  atomic.Pointer[hook]

	mu       sync.Mutex
	deadline time.Time // the user's
	over     bool      // the deadline of the source is one that is over
	ability  atomic.Int32
}

const wakened = 1 << 62

// What is known of a source's deadlines. Having the method proves nothing: os.Stdin and regular files refuse.
const (
	unknown = iota
	able
	unable
)

// longAgo is over, whatever the clock says.
var longAgo = time.Unix(1, 0)

// A hook is the registration with a context.
type hook struct{ undo func() bool }

// enter notes that a call is about to block, and has it woken when ctx ends.
func (w *waker) enter(ctx context.Context) {
	w.calls.Add(1)
	if w.hook.Load() == nil {
		w.register(ctx)
	}
}

// leave notes that a call has returned.
func (w *waker) leave() {
	if w.calls.Add(-1) != wakened {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over && w.calls.Load() == wakened {
		w.over = false
		_ = w.set(w.deadline) // fails where the source has been closed
	}
}

// wake makes the calls that are inside return.
func (w *waker) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	inside := w.calls.Or(wakened) &^ wakened
	if inside > 0 && !w.over && w.ability.Load() != unable {
		w.over = w.set(longAgo) == nil
	}
}

func (w *waker) register(ctx context.Context) {
	h := new(hook)
	if !w.hook.CompareAndSwap(nil, h) {
		return // by somebody else, a moment ago or right now
	}
	undo := context.AfterFunc(ctx, w.wake)
	w.mu.Lock()
	h.undo = undo
	w.mu.Unlock()
	if w.hook.Load() != h {
		undo() // forgotten meanwhile
	}
}

// release forgets the context, unless it has calls to wake: when one of many ends, the others still rely on the
// registration. The next call to enter registers again.
func (w *waker) release(ctx context.Context) {
	w.forget()
	if w.calls.Load()&^wakened > 0 { // looked at after: whoever comes in now registers for itself
		w.register(ctx)
	}
}

// forget forgets the context.
func (w *waker) forget() {
	h := w.hook.Swap(nil)
	if h == nil {
		return
	}
	w.mu.Lock()
	undo := h.undo
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
