package eventloop

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/ctxkey"
	"github.com/swansong-go/swansong/internal/panics"
)

var (
	// ErrStarted is returned by the second Start or Run of a loop.
	ErrStarted = errors.New("eventloop: the loop was started before; a loop runs once, create another with New")
	// ErrStopped is returned after the loop, or the scope that it is in, has been stopped.
	ErrStopped = errors.New("eventloop: the loop has been stopped; create another with New")
	// ErrNotRunning is returned before the loop is running.
	ErrNotRunning = errors.New("eventloop: the loop is not running; call Start or Run first")
)

// A Loop runs callbacks on one goroutine. The package documentation describes its states and its
// contract.
//
// The methods may be called concurrently, also from callbacks of the loop. The zero value is not
// usable: create a Loop with [New].
//
// Call Stop when a Loop is not needed any more. A Loop that the garbage collector finds unreachable
// stops when it has nothing left to do and no timer is pending, because no goroutine can post to it. It
// prints the line that has called New on standard error.
type Loop struct {
	*loop
}

// A loop is what a Loop consists of. Its goroutine refers to the loop and not to the Loop, which can
// therefore become unreachable.
type loop struct {
	box      *inbox
	timers   *timers
	stats    *Stats
	shutdown *ShutdownHandle
	options

	scope    *ctxshutdown.Swansong
	offloads *ctxshutdown.Swansong // a scope below scope, so that reports list offloads separately
	handles  *ctxshutdown.Swansong
	trace    tracer
	guard    *ctxshutdown.Guard // released once the loop is Stopped, its timers are cancelled and its shutdown handle is triggered

	failure  atomic.Pointer[error] // the first error, see Err
	panicked atomic.Bool           // whether a panic has stopped the loop
	site     string                // where New was called

	// Only the loop's goroutine uses the following fields. Producers read the fields before them.
	_        [64]byte
	chunk    *chunk // the chunk whose callbacks are being run
	at       int    // the index of the next callback in the chunk
	executed uint64
	drained  bool // whether all accepted callbacks have run and none can follow
	crashing bool // whether a panic is about to end the program
}

// New returns a loop that has not been started. Its scope is a child of the nearest scope in ctx,
// as with [ctxshutdown.WithCancel]: the end of ctx stops the loop. The loop holds a guard of its
// scope until it is Stopped.
//
// This one guard stands for all accepted callbacks: the loop is not Stopped before they have run.
// So the scope waits for each of them as if it had a guard of its own, and reports name the loop as
// long as one is left. [Loop.Counts] tells how many there are. (A guard per callback would cost
// another 15 ns and a pointer in the queue.)
//
// Call [Loop.Stop] when the loop is no longer needed, even if it was never started. New panics if
// ctx is nil.
func New(ctx context.Context, opts ...Option) *Loop {
	if ctx == nil {
		panic("eventloop: New with a nil context")
	}
	l := &loop{box: newInbox(), shutdown: newShutdownHandle(), options: optionsOf("loop", opts)}
	l.site = callerOfNew()
	l.box.limit = uint64(l.queueLimit)
	l.stats = &Stats{box: l.box, slow: l.slow}
	l.box.timed = l.slow != nil
	l.timers = newTimers(l.box, &l.stats.cancelledTimers)
	ctx = context.WithValue(ctx, ctxkey.CheckWait{}, checkWait)
	l.scope, _ = ctxshutdown.WithCancel(ctx, ctxshutdown.WithName(l.name))
	l.offloads = describedScope(l.scope, "offloads", countedAs("offload"))
	l.handles = describedScope(l.scope, "handles", countedAs("handle"))
	l.trace = newTracer(l.scope, l.slow)
	var ok bool
	if l.guard, ok = l.scope.TryGuard(); !ok {
		l.beginStop()
	}
	context.AfterFunc(l.scope, l.beginStop)
	return l.watch()
}

// Scope returns the loop's scope. It is done when the loop is stopped, its Work is the context of
// offloaded work, and its report names what the loop is waiting for.
func (l *Loop) Scope() *ctxshutdown.Swansong { return l.scope }

// State returns the current state.
func (l *Loop) State() State { return l.state() }

func (l *loop) state() State { return State(l.box.state.Load()) }

// ShutdownHandle returns the loop's shutdown handle. Every call returns the same handle.
func (l *Loop) ShutdownHandle() *ShutdownHandle { return l.shutdown }

// Stats returns the loop's counters. Every call returns the same counters.
func (l *Loop) Stats() *Stats { return l.stats }

// Err returns the first panic of a callback, a timer or a completion from which the loop has
// recovered (see [WithPanicHandler]), as a [*PanicError], or the error of the init function, or nil.
// A call of [runtime.Goexit] counts as such a panic. If the loop was stopped by that panic or error, the cause of
// the loop's scope is the same error.
func (l *Loop) Err() error {
	if err := l.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Post queues f to run after everything that was posted before, and returns true. If the loop is
// not Running, Post returns false and f never runs. The posts of one goroutine run in order.
//
// After Stop has returned, Post returns false. A stop of a scope above reaches the loop shortly
// after it, through context.AfterFunc; callbacks that are accepted in between run and are waited
// for. (Checking the scope in each Post would cost a third of its speed: 0.45 of a channel's time
// instead of 0.32.)
//
// Post never blocks. The queue is limited by memory only, unless [WithQueueLimit] was given: then
// Post returns false also when the queue is full, and [Loop.PostWait] waits for room. A call of Post synchronizes before the
// call of f, and callbacks synchronize before those that run after them. Post panics if f is nil.
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

// Start runs the loop on a new goroutine and returns when it is Running. It returns [ErrStarted],
// [ErrStopped] or the error of the init function if the loop does not get there.
func (l *Loop) Start() error {
	if err := l.begin(); err != nil {
		return err
	}
	ready := make(chan error, 1)
	go l.serve(func(err error) { ready <- err })
	return <-ready
}

// Run runs the loop on the calling goroutine, and main on another one once the loop is Running.
// When main returns, the loop is stopped. Run returns once main has returned and the loop has
// drained, with the error of main joined with [Loop.Err].
//
// The context of main ends when ctx ends or the loop is stopped. Run does not return before main
// does. A panic of main ends the program, like a panic in any goroutine. If the loop does not
// become Running, Run returns the error that [Loop.Start] would return, without calling main.
//
// Run panics if ctx or main is nil. If a callback calls [runtime.Goexit], the calling goroutine
// ends once the loop has drained and main has returned.
func (l *Loop) Run(ctx context.Context, main func(ctx context.Context) error) error {
	if ctx == nil {
		panic("eventloop: Run with a nil context")
	}
	mustFunc(main != nil, "Run")
	if err := l.begin(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stopAfterFunc := context.AfterFunc(l.scope, func() { cancel(context.Cause(l.scope)) })
	defer stopAfterFunc()

	var notReady error
	result := error(&PanicError{In: "main", Value: ErrGoexit})
	returned := make(chan struct{})
	defer func() {
		if !l.crashing {
			<-returned // wait for main even if a callback has called Goexit
		}
	}()
	guard := l.guard.Clone()
	defer l.trace.unlabel(ctx)
	l.serve(func(err error) {
		if notReady = err; err != nil {
			guard.Release()
			close(returned)
			return
		}
		go func() {
			defer panics.UnlessPanic(func() {
				l.Stop()
				guard.Release()
				close(returned)
			})
			result = main(ctx)
		}()
	})
	<-returned
	if notReady != nil {
		return notReady
	}
	return errors.Join(result, l.Err()) // this use of l keeps the Loop reachable while main runs, see drop
}

// begin changes the state from Idle to Starting. It returns an error if the loop was started before
// or its scope has been stopped.
func (l *loop) begin() error {
	in := ""
	if l.init != nil {
		in = "init"
	}
	if !l.box.begin(in) {
		if s := l.state(); s == Stopping || s == Stopped {
			return ErrStopped
		}
		return ErrStarted
	}
	if l.scope.Err() != nil {
		l.beginStop()
		l.finish()
		return ErrStopped
	}
	return nil
}

// Stop stops the loop and returns the completion to wait for. The state becomes Stopping before
// anything else happens; from then on nothing is accepted, and what was accepted runs. Stop never
// blocks, may be called repeatedly, and may be called from anywhere. A loop that was not started
// becomes Stopped at once.
//
// The completion resolves when the loop is Stopped, all its offloads have returned and its handles
// have been released. In a callback, its Wait returns [ErrInCallback] instead of waiting. The completion
// of a scope above does not: there the callback would wait for itself until the context of the wait
// ends.
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
	// If the loop has been started, its goroutine releases the guard, or begin does.
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
// goroutine that stopped a scope above may not have done so yet. At last it releases the loop's
// guard, which lets the completion resolve.
func (l *loop) finish() {
	l.notifyStopped()
	l.box.end()
	l.guard.Release()
}

// serve is the body of the loop's goroutine. It calls ready once: when the loop is Running, or when
// it is certain that the loop will never be Running.
func (l *loop) serve(ready func(error)) {
	if l.lockThread {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	l.trace.label()
	defer l.run() // run is deferred, because the init function may call Goexit
	l.runInit(ready)
}

func (l *loop) runInit(ready func(error)) {
	var err error
	finished := false
	defer func() {
		if !finished {
			err = newPanicError("init", recover())
		}
		l.box.setRunning("")
		if err != nil {
			l.recordFailure(err)
			l.stop(err)
		} else if !l.box.swap(Starting, Running) {
			err = ErrStopped
		}
		ready(err)
	}()
	if l.init != nil {
		if err = l.init(); err != nil {
			err = fmt.Errorf("eventloop: init function of the loop failed: %w", err)
		}
	}
	finished = true
}

// run runs callbacks until none will follow. If a callback calls runtime.Goexit, its goroutine only
// executes deferred calls any more, so run continues in a deferred call. This ends, because the
// loop has then been stopped.
func (l *loop) run() {
	defer func() {
		if !l.drained && !l.crashing {
			l.run()
		}
	}()
	for !l.drained {
		l.runCallbacks()
	}
	l.end()
}

// runCallbacks runs callbacks until the loop has drained, or a callback panics or calls
// runtime.Goexit.
func (l *loop) runCallbacks() {
	returned := false
	defer func() {
		if !returned {
			l.handlePanic(recover())
		}
	}()
	for {
		for c := l.chunk; c != nil && l.at < c.n; {
			f := c.fs[l.at]
			c.fs[l.at] = nil // lets the garbage collector free what the callback has captured
			l.at++
			if l.slow == nil {
				f()
			} else {
				l.slow.call("callback", f)
			}
			l.countExecuted()
			if l.timers.due.Load() {
				l.runTimers()
			}
		}
		l.stopIfDropped()
		empty := l.chunk
		l.chunk = nil // the chunk now belongs to the inbox, which may give it to another loop
		l.chunk, l.drained = l.box.take(empty)
		if l.drained {
			break
		}
		l.at = 0
		if l.slow != nil && l.chunk != nil {
			l.slow.takeBatch(l.chunk.queued)
		}
		l.runTimers()
	}
	returned = true
}

func (l *loop) countExecuted() {
	l.executed++
	l.box.executed.Store(l.executed)
	if l.box.hasWaiters.Load() {
		l.box.mu.Lock()
		l.box.fillRoom()
		l.box.mu.Unlock()
	}
}

// end updates the counters of Stats and calls finish. It is the last call on the loop's goroutine.
func (l *loop) end() {
	offloads, handles := uint64(l.box.offloads.count()), uint64(l.box.handles.count())
	switch {
	case !l.panicked.Load():
		l.stats.unbalancedShutdowns.Add(offloads + handles)
	case offloads+handles > 0:
		l.stats.abortedUnwinds.Add(1)
		l.stats.leakedTasks.Add(offloads)
	}
	if refused := l.box.refusedStopping.Load(); l.onUnclean != nil && offloads+handles+refused > 0 {
		l.onUnclean(fmt.Errorf("eventloop: loop %q ended while %d offloads were running and %d handles held, and has refused %d callbacks since its stop; "+
			"stop the producers, then call WaitIdle and Quiesce, then Stop", l.name, offloads, handles, refused))
	}
	l.finish()
}
