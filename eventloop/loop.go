package eventloop

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/ctxkey"
)

var (
	// ErrStarted is returned by the second Start or Run of a loop.
	ErrStarted = errors.New("eventloop: the loop was started before; a loop runs once, create another with New")
	// ErrStopped is returned by operations on a loop that has been stopped, or whose parent scope
	// has been stopped.
	ErrStopped = errors.New("eventloop: the loop has been stopped; create another with New")
	// ErrNotRunning is returned by operations that need a running loop, before the loop is running.
	ErrNotRunning = errors.New("eventloop: the loop is not running; call Start or Run first")
)

// A Loop runs callbacks on one goroutine. The package documentation describes its states and its
// contract.
//
// The methods may be called concurrently, even from callbacks of the loop. The zero value is not
// usable: create a Loop with [New].
//
// Call Stop when a Loop is no longer needed. A Loop that the garbage collector finds unreachable
// stops when it has nothing left to do and no timer is pending, because no goroutine can post to
// it. The line that has called New is then printed on standard error.
type Loop struct {
	*loop
}

// A loop is the content of a Loop. Its goroutine refers to the loop and not to the Loop, which can
// therefore become unreachable.
type loop struct {
	box      *inbox
	timers   *timers
	stats    *Stats
	shutdown *ShutdownHandle
	options

	scope    *ctxshutdown.Swansong
	offloads *ctxshutdown.Swansong // a child of scope, so that reports list offloads separately
	handles  *ctxshutdown.Swansong
	trace    tracer

	// guard keeps the scope from completing. It is released after all three: the loop is Stopped,
	// its timers are cancelled, and its shutdown handle is triggered.
	guard *ctxshutdown.Guard

	// moreGuards is the number of guards that the loop itself holds in addition to guard: one
	// during Run, and one for a function that is running if the loop is traced. It is set before
	// such a guard is acquired.
	moreGuards atomic.Int32

	failure  atomic.Pointer[error] // the first panic or error, which Err returns
	panicked atomic.Bool           // whether a panic has stopped the loop
	site     string                // file and line of the call of New

	// Only the loop's goroutine uses the fields below. The padding keeps them off the cache line of
	// the fields above, which producers read.
	_        [64]byte
	chunk    *chunk // the chunk whose callbacks are being run
	at       int    // the index of the next callback in the chunk
	executed uint64
	pinned   bool // whether the loop must stay on its goroutine, which is that of the caller of Run or is locked to a thread
	drained  bool // whether all accepted callbacks have run and none can follow
	crashing bool // whether a panic is about to end the program
}

// New returns a loop that has not been started. Its scope is a child of the nearest scope in ctx,
// as with [ctxshutdown.WithCancel]: the end of ctx stops the loop. The loop holds a guard of its
// scope until it is Stopped.
//
// This one guard stands for all accepted callbacks: the loop is not Stopped before they have run.
// So the scope waits for each callback as if the callback had a guard of its own. Reports count the
// callbacks, and show 1 if there are none. (A guard per callback would cost another 15 ns and a
// pointer in the queue.)
//
// Call [Loop.Stop] when the loop is no longer needed, even if it was never started. New panics if
// ctx is nil.
func New(ctx context.Context, opts ...Option) *Loop {
	if ctx == nil {
		panic("eventloop: New with a nil context")
	}
	l := &loop{box: newInbox(), shutdown: newShutdownHandle(), options: optionsOf("loop", opts)}
	l.site = callerOfNew()
	l.box.limit, l.box.slow = uint64(l.queueLimit), l.slow
	l.stats = &Stats{box: l.box, slow: l.slow}
	l.timers = newTimers(l.box, &l.stats.cancelledTimers)
	ctx = context.WithValue(ctx, ctxkey.CheckWait{}, checkWait)
	l.scope = describedScope(ctx, l.name, l.describe)
	l.offloads = describedScope(l.scope, "offloads", countedAs("offload"))
	l.handles = describedScope(l.scope, "handles", countedAs("handle"))
	l.trace = newTracer(l.scope, l.slow, &l.moreGuards)
	var ok bool
	if l.guard, ok = l.scope.TryGuard(); ok {
		ctxkey.NameShared(l.scope, l.guard) // in reports, this guard stands for all functions that the loop has to call
	} else {
		l.beginStop()
	}
	context.AfterFunc(l.scope, l.beginStop)
	return l.watch()
}

// describe says in reports what the loop's guards stand for. The scope may have other guards,
// because the user can acquire some.
func (l *loop) describe(guards int) ctxkey.Work {
	own := int(l.moreGuards.Load())
	if l.state() != Stopped {
		own++ // a loop that is not Stopped holds l.guard
	}
	c := l.counts()
	if c.In != "" {
		c.Queued++
	}
	return ctxkey.Work{Noun: "callback", Count: c.Queued, Shared: true, Extra: max(guards-own, 0)}
}

// Scope returns the loop's scope. It is done when the loop is stopped, its Work is the context of
// offloaded work, and its report names what the loop is waiting for.
func (l *Loop) Scope() *ctxshutdown.Swansong { return l.scope }

// State returns the current state.
func (l *Loop) State() State { return l.state() }

func (l *loop) state() State { return State(l.box.state.Load()) }

// ShutdownHandle returns the loop's shutdown handle. Every call returns the same handle.
func (l *Loop) ShutdownHandle() *ShutdownHandle { return l.shutdown }

// Stats returns the loop's counters. Every call returns the same pointer.
func (l *Loop) Stats() *Stats { return l.stats }

// Err returns the first panic of a callback, a timer or a completion from which the loop has
// recovered (see [WithPanicHandler]), as a [*PanicError], or the error of the init function, or
// nil. A call of [runtime.Goexit] counts as such a panic. If that panic or error has stopped the
// loop, the cause of the loop's scope is the same error.
func (l *Loop) Err() error {
	if err := l.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Post queues f to run after everything that was posted before, and returns true. If the loop is
// not Running, Post returns false and f never runs. The posts of one goroutine run in order.
//
// After Stop has returned, Post returns false. If a parent scope is stopped, the loop stops shortly
// afterwards, through context.AfterFunc. Callbacks that are accepted in the meantime run, and the
// scope waits for them. (Post does not check the scope itself, because that would make it slower by
// two fifths.)
//
// Post never blocks. The queue is limited by memory only, unless [WithQueueLimit] was given: then
// Post also returns false when the queue is full, and [Loop.PostWait] waits for room. A call of
// Post synchronizes before the call of f, and callbacks synchronize before those that run after
// them. Post panics if f is nil.
func (l *Loop) Post(f func()) bool {
	mustFunc(f != nil, "Post")
	if l.trace.on() {
		f = l.trace.callback(f)
	}
	return l.box.post(f)
}

func mustFunc(ok bool, what string) {
	if !ok {
		panic("eventloop: " + what + " with a nil function")
	}
}

// Stop stops the loop and returns the completion to wait for. The state becomes Stopping before
// anything else happens; from then on nothing is accepted, and the accepted callbacks run. Stop
// never blocks, may be called repeatedly, and may be called from anywhere. A loop that was not
// started becomes Stopped at once.
//
// The completion resolves when the loop is Stopped, all its offloads have returned and its handles
// have been released. In a callback, its Wait returns [ErrInCallback] instead of waiting. The
// completion of a parent scope does not return this error: a callback that waits for it waits for
// itself, until the context of the wait ends.
func (l *Loop) Stop() *ctxshutdown.Completion { return l.stop(nil) }

func (l *loop) stop(cause error) *ctxshutdown.Completion {
	l.beginStop()
	return l.scope.ShutdownCause(cause)
}

// beginStop begins to stop the loop: it changes the state, cancels the timers and triggers the
// shutdown handle. Every way to stop a loop calls it. A second call does the same, because the
// first one may not be finished yet.
func (l *loop) beginStop() {
	from, changed := l.box.stop()
	l.notifyStopped()
	if changed {
		l.box.wake()
	}
	// A loop that was never started has no goroutine that would release l.guard at the end.
	if changed && from == Idle {
		l.guard.Release()
	}
}

// notifyStopped cancels the timers and triggers the shutdown handle. When it returns, both have
// happened, even if another goroutine calls it at the same time.
func (l *loop) notifyStopped() {
	l.timers.cancelAll()
	l.shutdown.Trigger()
}

// finish changes the state from Stopping to Stopped. Before that it calls notifyStopped, since the
// goroutine that stopped a parent scope may not have called it yet. Finally it releases the loop's
// guard, which lets the completion resolve.
func (l *loop) finish() {
	l.notifyStopped()
	l.box.end()
	l.guard.Release()
}
