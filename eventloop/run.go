package eventloop

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/swansong-go/swansong/internal/ctxkey"
	"github.com/swansong-go/swansong/internal/panics"
	"github.com/swansong-go/swansong/internal/worktext"
)

// Start runs the loop on a new goroutine and returns when it is Running. It returns [ErrStarted],
// [ErrStopped] or the error of the init function if the loop does not become Running.
func (l *Loop) Start() error {
	if err := l.begin(); err != nil {
		return err
	}
	ready := make(chan error, 1)
	l.pinned = l.lockThread
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
	l.moreGuards.Add(1)
	guard := l.guard.Clone()
	ctxkey.NameShared(l.scope, guard)
	release := func() {
		guard.Release()
		l.moreGuards.Add(-1)
	}
	defer l.trace.unlabel(ctx)
	l.pinned = true
	l.serve(func(err error) {
		if notReady = err; err != nil {
			release()
			close(returned)
			return
		}
		go func() {
			defer panics.UnlessPanic(func() {
				l.Stop()
				release()
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

// run runs callbacks until none will follow.
func (l *loop) run() {
	for !l.drained {
		l.runCallbacks()
	}
	l.end()
}

// runCallbacks runs callbacks until the loop has drained, or a callback panics or calls
// runtime.Goexit. After a Goexit, runCallbacks does not return, and resume continues the loop.
func (l *loop) runCallbacks() {
	returned := false
	defer func() {
		if returned {
			return
		}
		goexit := true
		defer func() { // panics are handled in a deferred call, because the panic handler may call Goexit, too
			if goexit && !l.crashing {
				l.resume()
			}
		}()
		value := recover()
		l.handlePanic(value)
		goexit = value == nil
	}()
	for {
		for c := l.chunk; c != nil && l.at < c.n; {
			f := c.fs[l.at]
			c.fs[l.at] = nil // so that the garbage collector can free what f has captured
			l.at++
			if l.slow == nil {
				f()
			} else {
				l.slow.call("callback", f, c.queued[l.at-1])
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
		if l.slow != nil {
			l.slow.reported = false
		}
		l.runTimers()
	}
	returned = true
}

// resume makes the loop continue after a callback has called runtime.Goexit. From then on, this
// goroutine can only execute deferred calls, so a new goroutine continues the loop. If the loop
// must stay on its goroutine, resume, which is a deferred call, continues the loop itself, and the
// stack grows with each Goexit. The stack does not grow for ever, because the first Goexit has
// stopped the loop.
func (l *loop) resume() {
	if l.pinned {
		l.run()
	} else {
		go l.run() // the new goroutine inherits the pprof label, so it need not be set
	}
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
		l.onUnclean(fmt.Errorf("eventloop: loop %q ended with %s running and %s held, and has refused %s since its stop; "+
			"stop the producers, then call WaitIdle and Quiesce, then Stop", l.name,
			worktext.Pluralize(int(offloads), "offload"), worktext.Pluralize(int(handles), "handle"), worktext.Pluralize(int(refused), "callback")))
	}
	l.finish()
}
