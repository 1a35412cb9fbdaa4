package ctxshutdown

import "context"

// Recv receives from ch. It returns false when ch is closed or ctx is done. It prefers the end of ctx to an element
// that is ready, and leaves that element in the channel for the next owner. A nil channel blocks until ctx is done.
func Recv[T any](ctx context.Context, ch <-chan T) (v T, ok bool) {
	mustIterate(ctx, false)
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

// Send sends v to ch. It returns false, with v not sent, when ctx is done; it prefers that to a receiver that is
// ready. A nil channel blocks until ctx is done. As any send, it panics when ch is closed.
func Send[T any](ctx context.Context, ch chan<- T, v T) bool {
	mustIterate(ctx, false)
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
