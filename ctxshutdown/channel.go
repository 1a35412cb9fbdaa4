package ctxshutdown

// Interrupts: operations on a channel, and pauses.
//
// Recv, Send and Sleep check ctx.Err before they select. Without that check, a loop over a full
// channel would receive several more elements after ctx has ended, because a select with two ready
// cases picks one at random. An element that becomes ready at the moment when ctx ends can still be
// received, and is then returned.

import (
	"context"
	"time"
)

// Recv receives a value from ch. It returns false if ch is closed or ctx is done. If ctx is done
// before the call, Recv leaves all values in the channel. If ch is nil, Recv blocks until ctx is
// done. Recv panics if ctx is nil.
func Recv[T any](ctx context.Context, ch <-chan T) (v T, ok bool) {
	checkContext(ctx)
	if ctx.Err() != nil {
		return v, false
	}
	select {
	case v, ok = <-ch:
		return v, ok
	case <-ctx.Done():
		return v, false
	}
}

// Send sends v to ch and returns true. If ctx is done first, Send returns false and does not send
// v. If ctx is done before the call, Send does not send v even if a receiver is ready. If ch is
// nil, Send blocks until ctx is done. Send panics if ch is closed, like any send, or if ctx is nil.
func Send[T any](ctx context.Context, ch chan<- T, v T) bool {
	checkContext(ctx)
	if ctx.Err() != nil {
		return false
	}
	select {
	case ch <- v:
		return true
	case <-ctx.Done():
		return false
	}
}

// Sleep pauses for the duration d and returns true. It returns false as soon as ctx ends, or at
// once if ctx has ended before the call. If d is zero or negative, Sleep does not pause and only
// checks ctx. Sleep panics if ctx is nil.
func Sleep(ctx context.Context, d time.Duration) bool {
	checkContext(ctx)
	if ctx.Err() != nil {
		return false
	}
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
