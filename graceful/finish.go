package graceful

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/refusal"
	"github.com/swansong-go/swansong/internal/stacks"
)

// notifyTimeout is the longest time for which Run waits at its end for watchers and for the last
// output. A logger or a terminal can block these.
const notifyTimeout = time.Second

// finish updates the counters, notifies watchers, and returns the error of Run.
func (r *run) finish(progress *progressLine) error {
	now := r.current()
	if r.result != nil {
		if err, ok := r.handover.close(); ok {
			r.recordResult(err)
		} // if f, the function given to Run, has not returned, its guard is reported as abandoned
	}
	failure := r.failure
	if now.outcome == cutShort && refusal.Is(failure, context.Cause(r.scope.Work())) {
		failure = nil // f, the function given to Run, has not failed if it only returns the cause of Force
	}
	if err := r.hooks.close(); err != nil {
		failure = errors.Join(failure, err)
	}
	var raise *PanicError // the panic of f or of a hook; Run panics with it again
	if errors.As(failure, &raise) && raise.Name != "" {
		// An event loop or a pool has recovered this panic, and the error of f contains it. So Run
		// returns it and does not panic.
		raise = nil
	}
	if err := r.takeLoopPanics(); err != nil {
		if failure != nil {
			err = errors.Join(failure, err)
		}
		failure = err
	}
	guards := func(e *ctxshutdown.DrainError) int {
		if e == nil {
			return 0
		}
		return e.Report.Count()
	}
	countRun(now.outcome, r.scope, guards(r.atForce), guards(r.atExit), now.Since.Sub(now.stopped))

	err := failure
	switch now.outcome {
	case cutShort:
		err = &ForcedError{r.atForce, failure}
	case abandoned:
		err = &AbandonedError{r.atExit, failure}
	}
	r.flushOutput(progress, err)
	if p := r.takePanic(); p != nil && raise == nil {
		raise = p
	}
	if raise != nil {
		panic(raise)
	}
	return err
}

// flushOutput waits until all watchers and the log have received everything, and then prints the
// abandoned guards, so that the hint "see the log" is printed after the log. The waiting and the
// printing take at most notifyTimeout each, since the disk of a log may hang and a terminal may be
// stopped.
func (r *run) flushOutput(progress *progressLine, err error) {
	reported := r.waiting.stop()
	inTime(func(cancelled <-chan struct{}) {
		progress.stop()
		r.mu.Lock()
		pending := slices.Clone(r.logged)
		if reported != nil {
			pending = append(pending, reported)
		}
		for _, w := range r.watchers {
			pending = append(pending, w.flushed())
		}
		r.mu.Unlock()
		for _, delivered := range pending {
			select {
			case <-delivered:
			case <-cancelled:
			}
		}
	})
	if left, ok := err.(*AbandonedError); ok {
		inTime(func(<-chan struct{}) { r.print(formatAbandoned(left, r.logsErrors())) })
	}
}

// inTime calls f on a new goroutine and returns when f has returned, or after notifyTimeout. In the
// second case, f continues, and inTime closes the channel that it has passed to f.
func inTime(f func(cancelled <-chan struct{})) {
	done, cancelled := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		f(cancelled)
	}()
	timer := time.NewTimer(notifyTimeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		close(cancelled)
	}
}

// maxStacks is the maximum number of different stacks in an AbandonedError if no scope is traced.
const maxStacks = 50

// userStacks returns the stacks of all goroutines that run a function that the program has passed
// to a package of this module, such as f, the function given to Run. Which of these goroutines hold
// guards is known only in traced scopes.
func userStacks() string {
	var b strings.Builder
	found := 0
	for _, g := range stacks.All() {
		if g.Frames = g.UserFrames(); len(g.Frames) == 0 {
			continue
		}
		if found++; found <= maxStacks {
			g.Write(&b, " of the program", nil)
		}
	}
	if found > maxStacks {
		fmt.Fprintf(&b, "and %d more stacks\n", found-maxStacks)
	}
	return b.String()
}

// formatAbandoned formats an AbandonedError: one line for each group of guards, followed by the
// stacks. If logged is true, the lines are omitted, because the log has the guards.
func formatAbandoned(e *AbandonedError, logged bool) string {
	var b strings.Builder
	if logged {
		b.WriteString("graceful: abandoned, see the log:\n")
	} else {
		fmt.Fprintf(&b, "graceful: abandoned (%s); guards still held: %d\n", withoutPrefix(e.Cause), e.Report.Count())
	}
	traced := false
	for _, g := range e.Report.Entries() {
		traced = traced || g.Site != ""
		if logged {
			continue
		}
		fmt.Fprintf(&b, "\t%s ×%d", cmp.Or(g.Path, "(unnamed)"), g.Count)
		if g.Site != "" {
			fmt.Fprintf(&b, " at %s for %v", g.Site, g.Oldest.Round(time.Millisecond))
		}
		b.WriteByte('\n')
	}
	if !logged {
		for _, q := range e.Report.Requests() {
			fmt.Fprintf(&b, "\trequest %s for %v\n", q.Request, q.Age.Round(time.Millisecond))
		}
	}
	if !traced {
		b.WriteString("\tSet CTXSHUTDOWN_TRACE=1 to see where guards were acquired and how long they have been held.\n")
	}
	b.WriteString(e.Stacks)
	return b.String()
}
