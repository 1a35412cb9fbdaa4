package eventloop

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/unwind"
)

var (
	// ErrStarted is returned by the second Start or Run of a loop.
	ErrStarted = errors.New("eventloop: this loop has been started; a loop runs once, for another run make another with New")
	// ErrStopped is returned where a loop, or the scope it is in, has been told to stop.
	ErrStopped = errors.New("eventloop: this loop has been told to stop, and takes on nothing; make another with New")
	// ErrNotRunning is returned where a loop accepts nothing because it is not running yet.
	ErrNotRunning = errors.New("eventloop: this loop is not running; call Start first, or Run")
)

// A Loop runs callbacks on one goroutine. See the documentation of the package for its states and its contract.
//
// All methods may be called from any number of goroutines at once, callbacks of the loop included. The zero value is not
// usable: make one with [New].
type Loop struct {
	box      *inbox
	timers   *timers
	stats    *Stats
	shutdown *ShutdownHandle
	options

	scope    *ctxshutdown.Swansong
	offloads *ctxshutdown.Swansong // below scope, so that reports tell the three apart
	handles  *ctxshutdown.Swansong
	guard    *ctxshutdown.Guard // until Stopped, and all that there is to tell is told

	failure  atomic.Pointer[error] // the first
	panicked atomic.Bool           // a panic has stopped the loop

	// What follows is the loop's goroutine's own. Producers read what is above.
	_        [64]byte
	chunk    *chunk // being run
	at       int    // the next callback in it
	executed uint64
	over     bool // take has said so
}

// New returns a loop that has not been started. Its scope is a child of the nearest scope in ctx, as of
// [ctxshutdown.WithCancel]: when ctx ends, the loop is told to stop. It is a guard of its scope until it is Stopped.
//
// That one guard stands for all callbacks that were accepted: the loop is not Stopped before they have run, so the scope
// waits for each of them as if it had a guard of its own, and the report names the loop as long as one is left. How many
// there are is for [Loop.Counts] to say. (A guard each would cost another 15 ns, and a pointer in the queue.)
//
// Call [Loop.Stop] when done with it, also if it was never started. New panics if ctx is nil.
func New(ctx context.Context, opts ...Option) *Loop {
	if ctx == nil {
		panic("eventloop: cannot create a loop from a nil context")
	}
	l := &Loop{box: newInbox(), shutdown: newShutdownHandle(), options: optionsOf("loop", opts)}
	l.stats = &Stats{box: l.box}
	l.timers = newTimers(l.box, &l.stats.cancelledTimers)
	l.scope, _ = ctxshutdown.WithCancel(ctx, ctxshutdown.WithName(l.name))
	l.offloads, _ = ctxshutdown.WithCancel(l.scope, ctxshutdown.WithName("offloads"))
	l.handles, _ = ctxshutdown.WithCancel(l.scope, ctxshutdown.WithName("handles"))
	var ok bool
	if l.guard, ok = l.scope.TryGuard(); !ok {
		l.halt()
	}
	context.AfterFunc(l.scope, l.halt)
	return l
}

// Scope returns the loop's scope: its context is done when the loop is told to stop, its Work is the context of what is
// offloaded, and its report tells what the loop is waiting for.
func (l *Loop) Scope() *ctxshutdown.Swansong { return l.scope }

// State returns what the loop is doing.
func (l *Loop) State() State { return State(l.box.state.Load()) }

// ShutdownHandle returns the handle of this loop. It is always the same.
func (l *Loop) ShutdownHandle() *ShutdownHandle { return l.shutdown }

// Stats returns the counters of this loop. They are always the same.
func (l *Loop) Stats() *Stats { return l.stats }

// Err returns the first panic of a callback, a timer or a completion, as a [*PanicError], or the error of the init
// function; nil if there was none. Where it stopped the loop, it is the cause of the loop's scope as well.
func (l *Loop) Err() error {
	if err := l.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Post has the loop run f, after what was posted before, and returns true; or returns false if the loop is not Running,
// and then f never runs. Posts of one goroutine run in their order.
//
// Once Stop has returned, Post returns false. A stop that comes from a scope above reaches the loop a moment later, by
// context.AfterFunc; what is accepted until then is run and waited for like the rest. (To ask the scope at each Post would
// cost a third of its speed: 0.45 of a channel's time instead of 0.32.)
//
// It never waits for the loop: the queue has no limit but memory. A call of Post synchronizes before the call of f, and
// callbacks synchronize before those that run after them. Post panics if f is nil.
func (l *Loop) Post(f func()) bool {
	mustFunc(f != nil, "Post")
	return l.box.post(f)
}

func mustFunc(ok bool, what string) {
	if !ok {
		panic("eventloop: " + what + " of a nil function")
	}
}

// Start runs the loop on a goroutine of its own, and returns when it is Running. Otherwise it returns [ErrStarted],
// [ErrStopped] or what the init function did.
func (l *Loop) Start() error {
	if err := l.begin(); err != nil {
		return err
	}
	ready := make(chan error, 1)
	go l.serve(func(err error) { ready <- err })
	return <-ready
}

// Run runs the loop on the calling goroutine, and main on one of its own once the loop is Running. When main returns, the
// loop is stopped; when main has returned and the loop has drained, Run returns what main did, joined with [Loop.Err].
//
// The context of main ends when ctx does or when the loop is told to stop. A main that does not look at it keeps Run from
// returning. A panic in main ends the program, as in any goroutine, and Run does not return before that. Where the loop does
// not get to run, Run returns what [Loop.Start] would, and main is never called.
//
// Run panics if ctx or main is nil. A callback that calls [runtime.Goexit] ends the calling goroutine once the loop has
// drained and main has returned.
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
	undo := context.AfterFunc(l.scope, func() { cancel(context.Cause(l.scope)) })
	defer undo()

	var notReady error
	result := error(&PanicError{In: "main", Value: ErrGoexit})
	returned := make(chan struct{})
	defer func() { <-returned }() // also on the way of a Goexit
	guard := l.guard.Clone()
	l.serve(func(err error) {
		if notReady = err; err != nil {
			guard.Release()
			close(returned)
			return
		}
		go func() {
			defer unwind.UnlessPanic(func() {
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
	return errors.Join(result, l.Err())
}

// begin takes the loop from Idle to Starting, unless a stop from above is on its way.
func (l *Loop) begin() error {
	in := ""
	if l.init != nil {
		in = "init"
	}
	if !l.box.begin(in) {
		if s := l.State(); s == Stopping || s == Stopped {
			return ErrStopped
		}
		return ErrStarted
	}
	if l.scope.Err() != nil {
		l.halt()
		l.finish()
		return ErrStopped
	}
	return nil
}

// Stop tells the loop to stop, and returns what to wait on. Before anything else the state becomes Stopping, and from then
// on nothing is accepted; what was accepted runs. It never waits, is idempotent and may be called from anywhere. Stopping a
// loop that was not started makes it Stopped at once.
//
// The completion resolves when the loop is Stopped, all its offloads have returned and its handles are released. Do not
// wait for it in a callback: the loop would wait for itself, until the context of the wait ends.
func (l *Loop) Stop() *ctxshutdown.Completion { return l.stop(nil) }

func (l *Loop) stop(cause error) *ctxshutdown.Completion {
	l.halt()
	return l.scope.ShutdownCause(cause)
}

// halt flips the state. It is what every way to stop comes down to. Whoever comes second tells as well: the first may have
// flipped the state and no more.
func (l *Loop) halt() {
	from, flipped := l.box.stop()
	l.tell()
	if flipped {
		l.box.kick()
	}
	if flipped && from == Idle { // else the loop's goroutine does, or begin
		l.guard.Release()
	}
}

// tell has the timers and the handle know that the loop is told to stop. They do when it returns, whoever else is at it.
func (l *Loop) tell() {
	l.timers.cancelAll()
	l.shutdown.Trigger()
}

// finish makes a Stopping loop Stopped. It tells before that, for a stop from above may still be about to, and has the
// completion resolve after it.
func (l *Loop) finish() {
	l.tell()
	l.box.end()
	l.guard.Release()
}

// serve is the loop's goroutine. ready is called once, when the loop is Running or will not be.
func (l *Loop) serve(ready func(error)) {
	if l.lockThread {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	defer l.run() // deferred, for an init function that calls Goexit
	l.open(ready)
}

func (l *Loop) open(ready func(error)) {
	var err error
	finished := false
	defer func() {
		if !finished {
			err = unwinding("init", recover())
		}
		l.box.enter("")
		if err != nil {
			l.failed(err)
			l.stop(err)
		} else if !l.box.swap(Starting, Running) {
			err = ErrStopped
		}
		ready(err)
	}()
	if l.init != nil {
		if err = l.init(); err != nil {
			err = fmt.Errorf("eventloop: the init function of the loop failed: %w", err)
		}
	}
	finished = true
}

// run runs what is accepted until there will be no more. A callback that calls Goexit ends the goroutine, but only after
// its deferred calls: there the loop goes on. It is stopped then, so that this comes to an end.
func (l *Loop) run() {
	defer func() {
		if !l.over {
			l.run()
		}
	}()
	for !l.over {
		l.spin()
	}
	l.end()
}

// spin runs callbacks until the loop is over or one of them does not return.
func (l *Loop) spin() {
	returned := false
	defer func() {
		if !returned {
			l.unwound(recover())
		}
	}()
	for {
		for c := l.chunk; c != nil && l.at < c.n; {
			f := c.fs[l.at]
			c.fs[l.at] = nil // what it captures may go
			l.at++
			f()
			l.count()
			if l.timers.due.Load() {
				l.fire()
			}
		}
		empty := l.chunk
		l.chunk = nil // it may be another loop's while this one sleeps
		l.chunk, l.over = l.box.take(empty)
		if l.over {
			break
		}
		l.at = 0
		l.fire()
	}
	returned = true
}

func (l *Loop) count() {
	l.executed++
	l.box.executed.Store(l.executed)
}

// fire runs the timers that are due now. One that becomes due meanwhile comes after the next callback: timers alone never
// keep the loop busy.
func (l *Loop) fire() {
	if !l.timers.due.Load() {
		return
	}
	now, last := l.timers.now()
	for {
		f := l.timers.pop(now, last)
		if f == nil {
			return
		}
		l.box.enter("timer")
		f()
		l.box.enter("")
	}
}

// unwound deals with a callback that has panicked with value, or called Goexit. It is not over before the panic handler is,
// which may call Goexit itself.
func (l *Loop) unwound(value any) {
	in := "callback"
	if l.box.in == "timer" {
		in = "timer"
		defer l.refire()
	} else {
		defer l.count()
	}
	err := unwinding(in, value)
	l.stats.panics.Add(1)
	l.failed(err)
	if value != nil && l.onPanic != nil {
		l.report(err)
	} else {
		l.abort(err)
	}
}

// refire is for a fire that was cut short: due is up, and no alarm is set. To call fire here, and not after the next
// callback, would leave callbacks no room beside timers that panic.
func (l *Loop) refire() {
	l.box.enter("")
	l.box.kick()
}

// report calls the panic handler. One that does not come to its end stops the loop, and may have called Goexit.
func (l *Loop) report(err *PanicError) {
	returned := false
	defer func() {
		if !returned {
			l.stats.panics.Add(1)
			l.failed(unwinding("panic handler", recover()))
			l.abort(err)
		}
	}()
	l.onPanic(err)
	returned = true
}

func (l *Loop) abort(err error) {
	l.panicked.Store(true)
	l.stop(err)
}

func (l *Loop) failed(err error) { l.failure.CompareAndSwap(nil, &err) }

// end is the last thing that happens on the loop's goroutine.
func (l *Loop) end() {
	offloads, handles := uint64(l.box.offloads.count()), uint64(l.box.handles.count())
	switch {
	case !l.panicked.Load():
		l.stats.unbalancedShutdowns.Add(offloads + handles)
	case offloads+handles > 0:
		l.stats.abortedUnwinds.Add(1)
		l.stats.leakedTasks.Add(offloads)
	}
	l.finish()
}
