package graceful

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/probe"
	"github.com/swansong-go/swansong/internal/refusal"
)

var running atomic.Bool

var errRunning = errors.New("graceful: Run: another Run is under way, and a signal can lead down one ladder only; call it once, in main")

// patience is how long Run waits in the end for those who are told of it, be it a logger, a terminal or a callback.
const patience = time.Second

// Run runs f on a goroutine of its own, with a new root scope, and returns when everything has been drained, or
// abandoned: so every defer of the caller runs, on every path. What makes the process stop is a signal, the end of ctx,
// a Shutdown or Force of the scope, and the return of f, with or without an error. What happens then, and when, is the
// ladder of the package documentation.
//
// The scope has the values of ctx, but not its end, which asks the process to stop as a first signal does. f is called in
// any case, also if that has happened before, and is itself a guard, of the scope "main".
//
// Run returns what f and the hooks have returned, nil for a clean end, or a [*ForcedError] or an [*AbandonedError], which
// contain that; [ExitCode] makes an exit code of it. An f that returns the scope's Err or its [context.Cause], as they
// are, after the stop, has not failed, nor has one that returns the cause of Work after Force. Neither has one that returns
// the error of httpdrain.Serve for a scope that has been told to stop already: a signal that comes while the program is
// starting is no failure to start. Any other error around these is one, since nobody knows what it says besides.
//
// If f panics, Run drains, and then panics with a [*PanicError]; and so it does if a hook panics, or who is told of the run:
// a callback of [Process.Watch], a logger, an output.
//
// An option with a value that makes no sense, a ladder that is not shorter than the grace period in the environment, and a
// second Run while one is under way are errors, and f is not called. Run panics if ctx or f is nil.
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
	said := make(chan error, 1)
	r := &run{
		Process:  newProcess(ctx, c),
		f:        f,
		handover: handover{result: said},
		result:   said,
		mayEnd:   make(chan struct{}),
		hooks:    hooks{over: make(chan struct{})},
	}
	return r.drain(ctx)
}

// A run is what Run knows. All but f happens on the goroutine of Run.
type run struct {
	*Process
	f        func(s *ctxshutdown.Swansong) error
	handover handover
	result   <-chan error // of f
	failure  error        // what f has returned, once result is nil
	main     *ctxshutdown.Swansong
	mayEnd   chan struct{} // closed when the guard of f, in main, is not needed any more
	hooks    hooks
	atForce  *ctxshutdown.DrainError // who was cut short
	atExit   *ctxshutdown.DrainError // who is left
}

func (r *run) drain(ctx context.Context) error {
	signals, fake := ctx.Value(probe.SignalsKey{}).(chan os.Signal)
	if !fake {
		signals = make(chan os.Signal, 16)
		if len(r.config.signals) > 0 {
			signal.Notify(signals, r.config.signals...)
			defer signal.Stop(signals)
		}
	}
	if r.config.logger != nil {
		r.Watch((&logger{Process: r.Process}).watch)
	}
	manager := newManager(r.Process)
	watchdog, stopWatchdog := manager.watchdog()
	defer stopWatchdog()
	line := newLine(r.Process)

	asking, shutDown, work, complete := ctx.Done(), r.scope.Done(), r.scope.Work(), r.scope.Completion().Done()
	cut := work.Done()
	r.start()

	timer := time.NewTimer(longest)
	defer timer.Stop()
	for now := r.look(); now.Rung != Exit; now = r.look() {
		timer.Stop()
		if !now.Until.IsZero() {
			timer.Reset(time.Until(now.Until))
		}
		var e event
		select {
		case sig := <-signals:
			if fake && !slices.Contains(r.config.signals, sig) {
				continue
			}
			e = event{kind: signalled, cause: &SignalError{sig}}
		case <-asking:
			asking = nil
			e = event{kind: asked, cause: context.Cause(ctx)}
		case err := <-r.result:
			e = event{kind: returned, cause: r.returned(err)}
		case <-shutDown:
			shutDown = nil
			e = event{kind: stopped, cause: context.Cause(r.scope)}
		case <-cut: // by Force, of which more below, or because all has drained
			cut = nil
			e = event{kind: ticked}
		case <-r.hooks.over:
			r.hooks.over = nil
			e = event{kind: hooked}
		case <-timer.C:
			e = event{kind: ticked}
		case <-watchdog:
			manager.write("WATCHDOG=1") // where nobody hears it, that is seen soon enough
			continue
		case err := <-r.broken:
			e = event{kind: returned, cause: err}
		case <-r.poke:
			continue
		case <-complete:
			e = event{kind: stopped, cause: context.Cause(r.scope)}
		}
		// Whatever was heard of first: Force leads to Hard, past the hooks, and nobody is cut short who had ended before.
		over := closed(complete)
		if over {
			<-work.Done() // which says whether somebody else has forced it
		}
		if now.Rung < Hard {
			if f := r.forced(); f.cause != nil {
				r.take(f)
			}
		}
		if over && now.Rung >= Soft {
			e = event{kind: drained}
		}
		r.take(e)
	}
	return r.end(line)
}

// start runs f in a goroutine that Go has started, so that its stack is known by its scope. It keeps its guard until the
// ladder knows that f has returned, and has run the hooks: with no other guard, the scope would be complete before.
func (r *run) start() {
	r.main, _ = ctxshutdown.WithCancel(r.scope.Work(), ctxshutdown.WithName("main"))
	r.main.Go(func(context.Context) {
		protect(func() error { return r.f(r.scope) }, func(err error) {
			if p, ok := err.(*PanicError); !r.handover.give(err) && ok {
				panic(p) // nobody else is there to raise it
			}
			<-r.mayEnd
		})
	})
}

// take hands an event to the ladder, and does what that says.
func (r *run) take(e event) {
	e.at = time.Now()
	// Who is left is asked before the step: with it everybody is told that these were cut short, or abandoned. Between the two
	// somebody may Extend, so that less comes of the second one; nothing can have more come of it.
	next := r.look()
	var left *ctxshutdown.DrainError
	if todo := next.step(e); slices.Contains(todo, force) || slices.Contains(todo, abandon) {
		if left = blockers(r.scope.Completion(), next.why); left == nil && e.kind != forced {
			return // just in time: the scope is complete, which is what comes next
		}
	}
	todo, now := r.step(e)
	for _, a := range todo {
		switch a {
		case turnUnready:
			close(r.lame)
		case runHooks:
			if len(r.config.hooks) == 0 {
				r.take(event{kind: hooked})
			} else {
				r.startHooks(&r.hooks)
			}
		case shutdown:
			r.scope.ShutdownCause(now.Cause)
			r.release()
		case force:
			r.atForce = cmp.Or(left, &ctxshutdown.DrainError{Cause: now.why}) // nobody: they have ended by somebody else's Force
			r.scope.Force(now.why)
			r.release()
		case abandon:
			r.atExit = left
		}
	}
}

// release lets go of the guard of f. If f has returned, that has happened when release returns: no report names it then.
func (r *run) release() {
	if !closed(r.mayEnd) {
		close(r.mayEnd)
	}
	if r.result == nil {
		<-r.main.Shutdown().Done()
	}
}

// returned takes note of what f has returned. To return why one was stopped is to say nothing new.
func (r *run) returned(err error) (cause error) {
	if r.scope.Err() != nil && (refusal.Says(err, r.scope.Err()) || refusal.Says(err, context.Cause(r.scope))) {
		err = nil
	}
	r.failure, r.result = err, nil
	if closed(r.mayEnd) {
		r.release()
	}
	return cmp.Or(err, ErrReturned)
}

// forced returns the event of somebody else's Force, and one without a cause where there has been none. Force ends the soft
// tier before the hard one, so what Run has heard of may be one that is not through yet: a Work that is made only now knows.
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
	return event{kind: forced, cause: fmt.Errorf("graceful: by Force: %w", cause)}
}

// blockers returns which guards are held now, nil if the scope is complete. A report that names nobody is neither, so it is
// asked for again: it has met the last guard in the middle of its release, or one that moves. (It would be both in a scope
// that nobody has told to stop; in that of a run, f has a guard until then.)
func blockers(c *ctxshutdown.Completion, why error) (held *ctxshutdown.DrainError) {
	for errors.As(c.Wait(newMoment(why)), &held) && held.Report.Count() == 0 {
		held = nil
		runtime.Gosched()
	}
	return held
}

// A moment is a context that ends as soon as somebody waits for its end: by that, Wait, which refuses what has ended
// before, tells who holds a guard right now.
type moment struct {
	context.Context
	done  <-chan struct{} // closed
	cause error
	asked bool
}

func newMoment(cause error) *moment {
	done := make(chan struct{})
	close(done)
	return &moment{Context: context.Background(), done: done, cause: cause}
}

func (m *moment) Done() <-chan struct{} { m.asked = true; return m.done }

func (m *moment) Err() error {
	if m.asked {
		return m.cause
	}
	return nil
}

// end counts the run, tells of it, and returns its error.
func (r *run) end(line *line) error {
	now := r.look()
	if r.result != nil {
		if err, ok := r.handover.last(); ok {
			r.returned(err)
		} // else f is among those who are abandoned
	}
	failure := r.failure
	if now.outcome == cutShort && refusal.Says(failure, context.Cause(r.scope.Work())) {
		failure = nil // to return why one was cut short is to say nothing new, either
	}
	if err := r.hooks.last(); err != nil {
		failure = errors.Join(failure, err)
	}
	held := func(e *ctxshutdown.DrainError) int {
		if e == nil {
			return 0
		}
		return e.Report.Count()
	}
	count(now.outcome, r.scope, held(r.atForce), held(r.atExit), now.Since.Sub(now.stopped))

	err := failure
	switch now.outcome {
	case cutShort:
		err = &ForcedError{r.atForce, failure}
	case abandoned:
		err = &AbandonedError{r.atExit, failure}
	}
	r.lastWords(line, err)
	var p *PanicError
	if errors.As(failure, &p) {
		r.raise()
		panic(p)
	}
	if p := r.raise(); p != nil {
		panic(p)
	}
	return err
}

// print prints to the user's output, which may be anybody's code.
func (r *run) print(text string) {
	done := make(chan struct{})
	go protect(func() error {
		io.WriteString(r.config.output, text)
		return nil
	}, func(err error) {
		defer close(done)
		if err != nil {
			r.fail(err)
		}
	})
	<-done
}

// lastWords prints who was abandoned, and waits until everybody has been told of the end, but not for ever: a terminal
// may be stopped, and a log be on a disk that hangs.
func (r *run) lastWords(line *line, err error) {
	told := make(chan struct{})
	cancelled := make(chan struct{})
	go func() {
		defer close(told)
		line.stop()
		if left, ok := err.(*AbandonedError); ok {
			r.print(epitaph(left))
		}
		r.mu.Lock()
		watchers := slices.Clone(r.watchers)
		r.mu.Unlock()
		for _, w := range watchers {
			select {
			case <-w.told():
			case <-cancelled:
			}
		}
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-told:
	case <-timer.C:
		close(cancelled)
	}
}

// epitaph has a line for each group of guards, and the stacks.
func epitaph(e *AbandonedError) string {
	var b strings.Builder
	traced := false
	fmt.Fprintf(&b, "graceful: abandoned (%s), with %d held:\n", bare(e.Cause), e.Report.Count())
	for _, g := range e.Report.Entries() {
		fmt.Fprintf(&b, "\t%s ×%d", cmp.Or(g.Path, "(unnamed)"), g.Count)
		if g.Site != "" {
			traced = true
			fmt.Fprintf(&b, " at %s for %v", g.Site, g.Oldest.Round(time.Millisecond))
		}
		b.WriteByte('\n')
	}
	if !traced {
		b.WriteString("\tCTXSHUTDOWN_TRACE=1 tells where, for how long, and what they are doing.\n")
	}
	b.WriteString(e.Stacks)
	return b.String()
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
