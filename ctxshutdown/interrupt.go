package ctxshutdown

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
)

// An InterruptOption configures a [Reader], a [Writer] or a listener. A nil InterruptOption is ignored.
type InterruptOption interface{ applyInterrupt(*interruptOptions) }

type interruptOptions struct{ guarded, detached bool }

type interruptOption func(*interruptOptions)

func (f interruptOption) applyInterrupt(o *interruptOptions) { f(o) }

// Guarded has the wrapper hold a guard of the nearest scope in its context until it ends or is closed. It ends when a
// call on it returns the end of the input, an error that is no time-out, or the end of its context; a listener ends
// when it is closed, by whomever. So a reader that is stopped between two Reads holds its guard until the next Read:
// what was read is dealt with by then. A wrapper made when its context is done holds none.
func Guarded() InterruptOption {
	return interruptOption(func(o *interruptOptions) { o.guarded = true })
}

// Detached has a [Reader] read a source that cannot be woken in a helper goroutine, so that Read returns at once when
// the context ends. What the helper reads after that is the first thing that [Reader.Rest] returns. It costs a
// goroutine and a copy for each Read, and is ignored where the source can be woken, and by writers and listeners.
//
// If nobody writes to the source or closes it, the helper waits in it for ever.
func Detached() InterruptOption {
	return interruptOption(func(o *interruptOptions) { o.detached = true })
}

func interruptOptionsOf(opts []InterruptOption) (o interruptOptions) {
	for _, opt := range opts {
		if opt != nil {
			opt.applyInterrupt(&o)
		}
	}
	return o
}

// A holder holds the guard of a wrapper, if it was asked for one.
type holder struct{ guard atomic.Pointer[Guard] }

func (h *holder) hold(ctx context.Context, o interruptOptions) {
	if o.guarded {
		g, _ := Acquire(ctx)
		h.guard.Store(g)
	}
}

func (h *holder) letGo() {
	if h.guard.Load() != nil {
		h.guard.Swap(nil).Release()
	}
}

func closedError(what string) error {
	return fmt.Errorf("ctxshutdown: use of a closed %s: %w", what, os.ErrClosed)
}

// countError is for a source or a destination that breaks the contract of its interface.
func countError(of any, op string, n, size int) error {
	return fmt.Errorf("ctxshutdown: %T is broken: its %s returned the count %d for a buffer of %d bytes", of, op, n, size)
}

// isTimeout reports whether err is what an operation returns when its deadline has passed.
func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}
