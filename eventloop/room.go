package eventloop

import (
	"context"
	"errors"
	"slices"
)

// ErrQueueFull is returned by an offload to a pool whose queue is full.
var ErrQueueFull = errors.New("eventloop: the queue is full; wait with PostWait or SubmitWait, or drop the work")

// PostWait is like [Loop.Post], but waits for room if the queue is full (see [WithQueueLimit]). It
// returns nil if f was accepted. Otherwise f never runs, and PostWait returns [ErrNotRunning],
// [ErrStopped] if the loop was stopped before there was room, the cause of ctx if ctx ended before
// there was room, or [ErrInCallback] if a callback would have to wait. Goroutines that wait are
// served in the order in which they came. Without a limit PostWait does not wait. It panics if ctx
// or f is nil.
func (l *Loop) PostWait(ctx context.Context, f func()) error {
	mustFunc(f != nil, "PostWait")
	if ctx == nil {
		panic("eventloop: PostWait with a nil context")
	}
	if l.trace.on() {
		f = l.trace.callback(f)
	}
	if l.box.limit == 0 {
		if !l.box.post(f) {
			return l.notRunning()
		}
		return nil
	}
	w, ok := l.box.postWaiting(f)
	if !ok {
		return l.notRunning()
	}
	err := w.await(ctx, l.scope.Done(), ErrStopped)
	if err != nil && !l.box.leave(w) {
		return nil // f could not be withdrawn: room has become free, and f is in the queue
	}
	return err
}

// SubmitWait is like [Pool.Submit], but waits for room if the queue is full (see [WithQueueLimit]).
// It returns nil if f was accepted. Otherwise f never runs, and SubmitWait returns
// [ErrPoolStopped], the cause of ctx if ctx ended before there was room, or [ErrInCallback] if a
// callback of a loop would have to wait. Goroutines that wait are served in the order in which they
// came. Without a limit SubmitWait does not wait. It panics if ctx or f is nil. If a job calls
// SubmitWait of its own pool, the wait may last until ctx ends, since the job itself occupies room
// in the queue.
func (p *Pool) SubmitWait(ctx context.Context, f func()) error {
	mustFunc(f != nil, "SubmitWait")
	mustPool(p, "SubmitWait")
	if ctx == nil {
		panic("eventloop: SubmitWait with a nil context")
	}
	j := p.newJob(f, nil)
	if p.queue == 0 {
		return p.accept(j)
	}
	p.jobs.mu.Lock()
	w := p.waiters.add(j)
	p.fillRoom()
	p.jobs.mu.Unlock()
	err := w.await(ctx, p.scope.Done(), ErrPoolStopped)
	if err == nil {
		return nil
	}
	p.jobs.mu.Lock()
	defer p.jobs.mu.Unlock()
	if !p.waiters.remove(w) {
		return nil // there was room for the job when the wait ended, so it was queued, and will run
	}
	return err
}

// A waitList contains, in order, the functions or jobs that wait for room in a queue. The mutex of
// the queue guards it.
type waitList[T any] []*waiter[T]

// A waiter is one entry of a waitList. The channel is closed when the entry has been queued.
type waiter[T any] struct {
	what   T
	queued chan struct{}
}

func (l *waitList[T]) add(what T) *waiter[T] {
	w := &waiter[T]{what, make(chan struct{})}
	*l = append(*l, w)
	return w
}

// next removes the first entry and wakes the goroutine that waits for it. The caller has put the
// function or job of the entry into the queue.
func (l *waitList[T]) next() {
	close((*l)[0].queued)
	*l = slices.Delete(*l, 0, 1)
}

// remove removes the entry w and returns true. It returns false if w was queued or removed before.
func (l *waitList[T]) remove(w *waiter[T]) bool {
	i := slices.Index(*l, w)
	if i >= 0 {
		*l = slices.Delete(*l, i, i+1)
	}
	return i >= 0
}

// await waits until w has been queued, and then returns nil. It returns stopErr if the channel
// stopped is closed first, and the cause of ctx if ctx ends first.
func (w *waiter[T]) await(ctx context.Context, stopped <-chan struct{}, stopErr error) error {
	select {
	case <-w.queued:
		return nil
	default:
	}
	if err := checkWait(); err != nil {
		return err
	}
	select {
	case <-w.queued:
		return nil
	case <-stopped:
		return stopErr
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
