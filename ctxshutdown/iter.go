package ctxshutdown

// Interrupts: range loops.
//
// An iterator passes an element to the loop body by calling yield, and pulls the next one when
// yield returns true. So Seq checks the context after each yield: the body has handled its element,
// and the next element has not been pulled. A check before yield would lose the element that was
// just pulled.
//
// Seq and Seq2 are small enough to be inlined into the loop: see docs/internals/core.md#cost-of-go.

import (
	"context"
	"iter"
)

// Seq returns a sequence of the elements of seq that ends when ctx is done. It checks ctx before
// the first element and after each loop body. So a body that is running when ctx ends runs to its
// end, and no further element is pulled from seq. A seq that blocks before its next element is not
// woken; for a channel use [All]. Seq panics if ctx or seq is nil.
func Seq[T any](ctx context.Context, seq iter.Seq[T]) iter.Seq[T] {
	checkContext(ctx)
	panicIf(seq == nil, "ctxshutdown: Seq of a nil sequence")
	return func(yield func(T) bool) {
		if polled := pollable(ctx); polled.Err() == nil {
			seq(func(v T) bool { return yield(v) && polled.Err() == nil })
		}
	}
}

// Seq2 is [Seq] for sequences of pairs.
func Seq2[K, V any](ctx context.Context, seq iter.Seq2[K, V]) iter.Seq2[K, V] {
	checkContext(ctx)
	panicIf(seq == nil, "ctxshutdown: Seq2 of a nil sequence")
	return func(yield func(K, V) bool) {
		if polled := pollable(ctx); polled.Err() == nil {
			seq(func(k K, v V) bool { return yield(k, v) && polled.Err() == nil })
		}
	}
}

// All returns a sequence of the elements received from ch. It ends when ch is closed or ctx is
// done. Once ctx is done, no element is received, even if one is ready; an element that was
// received before is delivered. All panics if ctx is nil.
//
//	for v := range ctxshutdown.All(ctx, ch) {
func All[T any](ctx context.Context, ch <-chan T) iter.Seq[T] {
	checkContext(ctx)
	return func(yield func(T) bool) {
		for {
			v, ok := Recv(ctx, ch)
			if !ok || !yield(v) {
				return
			}
		}
	}
}
