package ctxshutdown

import (
	"context"
	"iter"
	"sync/atomic"
)

// Seq returns seq, ended by ctx: once ctx is done, nothing more is pulled, and what was pulled has been delivered. The
// check comes before the first element and after each body, so a body that is running when ctx ends finishes first.
// A seq that blocks for its next element is not woken; for a channel use [All].
func Seq[T any](ctx context.Context, seq iter.Seq[T]) iter.Seq[T] {
	mustIterate(ctx, seq == nil)
	return func(yield func(T) bool) {
		ctx := lookAt(ctx)
		if ctx.ended() {
			return
		}
		seq(func(v T) bool {
			return yield(v) && (atomic.LoadUint32((*uint32)(ctx.ending)) == 0 || ctx.ctx.Err() == nil)
		})
	}
}

// Seq2 is [Seq] for sequences of pairs.
func Seq2[K, V any](ctx context.Context, seq iter.Seq2[K, V]) iter.Seq2[K, V] {
	mustIterate(ctx, seq == nil)
	return func(yield func(K, V) bool) {
		ctx := lookAt(ctx)
		if ctx.ended() {
			return
		}
		seq(func(k K, v V) bool {
			return yield(k, v) && (atomic.LoadUint32((*uint32)(ctx.ending)) == 0 || ctx.ctx.Err() == nil)
		})
	}
}

// All returns the elements of ch until it is closed or ctx is done, for v := range All(ctx, ch). Once ctx is done no
// element is taken from ch, ready or not. An element that was taken is delivered.
func All[T any](ctx context.Context, ch <-chan T) iter.Seq[T] {
	mustIterate(ctx, false)
	return func(yield func(T) bool) {
		for {
			v, ok := Recv(ctx, ch)
			if !ok || !yield(v) {
				return
			}
		}
	}
}

// mustIterate panics in whoever makes the loop, rather than in the loop.
func mustIterate(ctx context.Context, nilSeq bool) {
	if ctx == nil {
		panic("ctxshutdown: nil context")
	}
	if nilSeq {
		panic("ctxshutdown: nil sequence")
	}
}
