package graceful

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/ctxkey"
	"github.com/swansong-go/swansong/internal/refusal"
)

var running atomic.Bool

var errRunning = errors.New("graceful: Run is already running; call it once per process, from main")

// Run calls f on a goroutine of its own, with a new root scope, and returns when everything has
// drained or has been abandoned. The deferred calls of Run's caller therefore run on every path.
// The process stops on a signal, at the end of ctx, after Shutdown or Force of the scope, and when
// f returns, with or without an error. The package documentation lists the phases of a stop.
//
// The scope has the values of ctx, but not its cancellation: the end of ctx asks the process to
// stop as the first signal does. f is called even if ctx has already ended. While it runs, it holds
// a guard of the scope "main".
//
// Run returns the errors of f and of the hooks, or nil after a clean end. After Force it returns a
// [*ForcedError], and if guards are still held at the end an [*AbandonedError]; both wrap these
// errors. [ExitCode] converts the error to an exit code.
//
// Some errors of f are not failures, if f returns them without wrapping them, or joined with nil
// only: after the stop, Err and [context.Cause] of the scope; after Force, the cause of Work; and
// the error with which httpdrain.Serve refuses a scope that has already been stopped, so that a
// signal during startup is not a failure to start.
//
// If f panics, Run drains and then panics with a [*PanicError]. It does the same if a hook panics,
// or a callback of [Process.Watch], the logger or the output. If a panic stops an event loop or a
// pool of package eventloop that belongs to the scope, Run logs the panic at once, drains, and then
// returns a [*PanicError].
//
// Run returns an error without calling f if an option has an invalid value, if the phases together
// are not shorter than the grace period in the environment, or if another Run is running. Run
// panics if ctx or f is nil.
func Run(ctx context.Context, f func(s *ctxshutdown.Swansong) error, opts ...Option) error {
	switch {
	case ctx == nil:
		panic("graceful: Run with a nil context")
	case f == nil:
		panic("graceful: Run with a nil function")
	}
	c, err := configure(opts)
	if err != nil {
		return err
	}
	if !running.CompareAndSwap(false, true) {
		return errRunning
	}
	defer running.Store(false)
	result := make(chan error, 1)
	r := &run{
		Process:     newProcess(ctx, c),
		f:           f,
		handover:    handover{result: result},
		result:      result,
		releaseMain: make(chan struct{}),
		hooks:       hooks{done: make(chan struct{})},
	}
	return r.drain(ctx)
}

// A run contains the state of a call of Run. Only f runs on another goroutine.
type run struct {
	*Process
	f           func(s *ctxshutdown.Swansong) error
	handover    handover
	result      <-chan error // receives the error of f; nil once the error has been received
	failure     error        // the error of f; valid once it has been received from result, which is then nil
	main        *ctxshutdown.Swansong
	releaseMain chan struct{} // closed when the goroutine of f may release its guard of the scope "main"
	hooks       hooks
	signals     *signalInputs
	reloads     *reloader
	waiting     *waitReporter
	atForce     *ctxshutdown.DrainError // the guards that were held when Force was called
	atExit      *ctxshutdown.DrainError // the guards that are still held in phase Exit
}

func (r *run) drain(ctx context.Context) error {
	in := r.inputs(ctx)
	defer in.stop()
	progress := newProgressLine(r.Process)
	r.waiting = &waitReporter{Process: r.Process, manager: in.manager, progress: progress}
	r.start()

	timer := time.NewTimer(longest)
	defer timer.Stop()
	for now := r.current(); now.Phase != Exit; now = r.current() {
		timer.Stop()
		if !now.Until.IsZero() {
			timer.Reset(time.Until(now.Until))
		}
		e, ok := r.nextEvent(in, timer.C)
		if !ok {
			continue
		}
		// Several inputs may be ready at once, and select chooses one of them at random. If the
		// scope has drained, that takes precedence: a guard that was released in time must not be
		// reported as cut short. A Force takes precedence, too, because it leads to Hard without
		// the hooks.
		complete := isClosed(in.complete)
		if complete {
			<-r.scope.Work().Done() // before that, the cause of Work does not tell whether the scope was forced
		}
		if now.Phase < Hard {
			if f := r.forced(); f.cause != nil {
				r.handle(f)
			}
		}
		if complete && now.Phase >= Soft {
			e = event{kind: drained}
		}
		r.handle(e)
	}
	return r.finish(progress)
}

// inputs contains the channels on which Run waits, except for the timer of the current phase.
type inputs struct {
	signals *signalInputs

	ctx      context.Context
	ctxDone  <-chan struct{} // ctxDone, stopped and cut are each set to nil once Run has received from them
	stopped  <-chan struct{}
	cut      <-chan struct{}
	complete <-chan struct{}

	manager  *manager
	watchdog <-chan time.Time
	stop     func()
}

func (r *run) inputs(ctx context.Context) *inputs {
	in := &inputs{ctx: ctx}
	fake, _ := ctx.Value(ctxkey.Signals{}).(chan os.Signal)
	r.signals = r.newSignalInputs(fake)
	in.signals = r.signals
	if r.config.logger != nil {
		r.Watch((&logger{Process: r.Process}).watch)
	}
	in.manager = newManager(r.Process)
	r.reloads = &reloader{Process: r.Process, manager: in.manager, done: make(chan struct{}, 1)}
	var stopWatchdog func()
	in.watchdog, stopWatchdog = in.manager.watchdog()
	in.stop = func() { stopWatchdog(); in.signals.stop() }
	in.ctxDone, in.stopped = ctx.Done(), r.scope.Done()
	in.cut, in.complete = r.scope.Work().Done(), r.scope.Completion().Done()
	return in
}

// nextEvent waits for an event and returns it. It returns false after an input that does not affect
// the phases, such as a tick of the watchdog.
func (r *run) nextEvent(in *inputs, timer <-chan time.Time) (e event, ok bool) {
	select {
	case sig := <-in.signals.stops:
		if r.reloads.isRequest(sig) {
			r.reloads.request()
			return e, false
		}
		return in.signals.stopEvent(sig)
	case <-in.signals.pipe:
		return in.signals.pipeEvent()
	case <-in.ctxDone:
		in.ctxDone = nil
		return event{kind: asked, cause: context.Cause(in.ctx)}, true
	case err := <-r.result:
		return event{kind: returned, cause: r.recordResult(err)}, true
	case <-in.stopped:
		in.stopped = nil
		return event{kind: stopped, cause: context.Cause(r.scope)}, true
	// The scope is complete, or Force was called. The caller, drain, finds out which.
	case <-in.cut:
		in.cut = nil
		return event{kind: timerFired}, true
	case <-r.hooks.done:
		r.hooks.done = nil
		return event{kind: hooksDone}, true
	case <-timer:
		return event{kind: timerFired}, true
	case <-in.watchdog:
		// If the message cannot be sent, systemd notices that it is missing.
		in.manager.write("WATCHDOG=1")
		return e, false
	case err := <-r.panics:
		return event{kind: returned, cause: err}, true
	case <-r.extended:
		return e, false
	case <-r.reloads.done:
		r.reloads.ended()
		return e, false
	case <-in.complete:
		return event{kind: stopped, cause: context.Cause(r.scope)}, true
	}
}

// start calls f, the function given to Run, in a goroutine of the scope "main". This goroutine
// holds a guard until Run has processed the return of f and the hooks have run. If it released the
// guard earlier and no other guard were held, the scope would be complete before the hooks have
// run.
func (r *run) start() {
	// the guard of f is left out of reports, because f waits for the work that they list
	d := &ctxkey.WorkDescriber{Describe: func(int) ctxkey.Work { return ctxkey.Work{} }}
	r.main, _ = ctxshutdown.WithCancel(context.WithValue(r.scope.Work(), ctxkey.Describer{}, d), ctxshutdown.WithName("main"))
	d.Scope = r.main
	r.main.Go(func(context.Context) {
		catchPanic(func() error { return r.f(r.scope) }, func(err error) {
			r.logPanicIn("function given to Run", err)
			if p, ok := err.(*PanicError); !r.handover.give(err) && ok {
				panic(p) // Run has returned and cannot raise this panic any more
			}
			<-r.releaseMain
		})
	})
}

// handle passes an event to the state machine of the phases, and executes the actions that it
// returns.
func (r *run) handle(e event) {
	e.at = time.Now()
	// List the remaining guards before the transition, because the transition notifies watchers.
	// next.step tells whether there will be a transition: it changes only the copy next. If Extend
	// is called between next.step and r.step, r.step may return no actions. It never returns more
	// actions than next.step.
	next := r.current()
	var held *ctxshutdown.DrainError
	if actions := next.step(e); slices.Contains(actions, force) || slices.Contains(actions, abandon) {
		if held = blockers(r.scope.Completion(), next.Why); held == nil && e.kind != forced {
			return // no guard is held any more: Run handles the completion of the scope next
		}
	}
	if next.Phase > Serving {
		// Call beginDrain before r.step: r.step makes the logger write, which can cause a SIGPIPE.
		r.signals.beginDrain()
	}
	if held != nil {
		// Call setBlockers before r.step: r.step makes the logger list these guards.
		r.setBlockers(held.Report)
	}
	actions, now := r.step(e)
	if now.Phase == Soft || now.Phase == Hard {
		r.waiting.start()
	}
	for _, a := range actions {
		switch a {
		case turnUnready:
			close(r.lameDuck)
		case runHooks:
			if len(r.config.hooks) == 0 {
				r.handle(event{kind: hooksDone})
			} else {
				r.startHooks(&r.hooks)
			}
		case shutdown:
			r.scope.ShutdownCause(now.Cause)
			r.releaseGuard()
		case force:
			// There is no report of held guards (held is nil) if other code has called Force and
			// all guards have been released since.
			r.atForce = cmp.Or(held, &ctxshutdown.DrainError{Cause: now.Why})
			r.scope.Force(now.Why)
			r.releaseGuard()
		case abandon:
			if held.Stacks == "" { // no scope is traced
				held.Stacks = userStacks()
			}
			r.atExit = held
		}
	}
}

// releaseGuard makes the goroutine that calls f, the function given to Run, release its guard. If f
// has returned, releaseGuard waits until the guard has been released, so that no report names it.
func (r *run) releaseGuard() {
	if !isClosed(r.releaseMain) {
		close(r.releaseMain)
	}
	if r.result == nil {
		<-r.main.Shutdown().Done()
	}
}

// recordResult stores the error of f, the function given to Run, and returns the cause of the stop.
// An error that only repeats why the scope was stopped is not a failure.
func (r *run) recordResult(err error) (cause error) {
	if r.scope.Err() != nil && (refusal.Is(err, r.scope.Err()) || refusal.Is(err, context.Cause(r.scope))) {
		err = nil
	}
	r.failure, r.result = err, nil
	if isClosed(r.releaseMain) {
		r.releaseGuard()
	}
	return cmp.Or(err, ErrReturned)
}

// forced returns the event for a call of Force by code other than Run. If no such code has called
// Force, the event has no cause. Force stops a scope before it cancels Work. A Force that has just
// begun is therefore only visible in a Work context that is derived now, so forced derives one.
func (r *run) forced() event {
	cause := context.Cause(r.scope.Work())
	if cause == nil {
		late, cancel := ctxshutdown.WithCancel(r.scope.Work())
		cause = context.Cause(late.Work())
		cancel()
	}
	if cause == nil || cause == ctxshutdown.ErrShutdown {
		return event{}
	}
	return event{kind: forced, cause: fmt.Errorf("graceful: Force was called: %w", cause)}
}

// blockers returns the guards that are held now, or nil if the scope is complete. If the report is
// empty, the last guard was being released or transferred at that moment, and blockers makes
// another report. This ends, because f, the function given to Run, holds a guard until the scope
// has been stopped, and a stopped scope without guards is complete.
func blockers(c *ctxshutdown.Completion, why error) (held *ctxshutdown.DrainError) {
	ended, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	for errors.As(c.Wait(ended), &held) && held.Report.Count() == 0 {
		held = nil
		runtime.Gosched()
	}
	return held
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
