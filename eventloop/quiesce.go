package eventloop

import (
	"context"
	"fmt"
	"time"

	"github.com/swansong-go/swansong/internal/worktext"
)

// Counts is a snapshot of what a loop, and the goroutines that work for it, are doing.
type Counts struct {
	Queued   int    // the number of callbacks that were accepted and have not finished, including the running one
	Offloads int    // the number of offloads whose work has not returned, including those that have timed out
	Handles  int    // the number of handles that have not been released
	Timers   int    // the number of pending timers
	In       string // "init" or "timer" while the loop runs the init function or a timer function; otherwise empty
}

// Counts returns the current counts. They may have been read at slightly different times. But if
// all counts except Timers are zero, there was a time at which they were all zero.
func (l *Loop) Counts() Counts { return l.counts() }

func (l *loop) counts() Counts {
	l.box.mu.Lock()
	c := l.box.counts()
	l.box.mu.Unlock()
	c.Timers = l.timers.pending()
	return c
}

// isQuiet reports whether no function is queued or running and no handle is held. It ignores
// pending timers.
func (c Counts) isQuiet() bool {
	c.Timers = 0
	return c == Counts{}
}

func (c Counts) String() string {
	s := fmt.Sprintf("%d queued, %s running, %s held, %s pending", c.Queued,
		worktext.Pluralize(c.Offloads, "offload"), worktext.Pluralize(c.Handles, "handle"), worktext.Pluralize(c.Timers, "timer"))
	if c.In != "" {
		s += fmt.Sprintf(", running a function of the kind %q", c.In)
	}
	return s
}

// Quiesce waits until, at one point in time, the loop has nothing to run, none of its offloads is
// running and no handle is held. Otherwise it returns a [*QuiesceTimeoutError] after timeout. It
// does not wait for pending timers. It stops nothing: stop the producers first, since the result is
// otherwise outdated at once.
//
// timeout has no default, because only the program knows how long its producers take. With zero or
// less, Quiesce only checks whether the loop is quiescent now. Before the start Quiesce waits for
// handles only, and after the stop for handles and late offloads. A loop that has ended, as after
// [Loop.Run], can no longer run anything: if callbacks were refused since its stop, Quiesce returns
// an error that counts them and wraps [ErrStopped]. If a callback calls Quiesce and Quiesce would
// have to wait, it returns [ErrInCallback] at once.
func (l *Loop) Quiesce(timeout time.Duration) error {
	if timeout > 0 && !l.Counts().isQuiet() {
		if err := checkWait(); err != nil {
			return err
		}
	}
	timer := time.NewTimer(max(timeout, 0))
	defer timer.Stop()
	for {
		if _, ok := await(l.box.offloads.idle(), timer); !ok {
			break
		}
		if _, ok := await(l.box.handles.idle(), timer); !ok {
			break
		}
		answer := l.box.idle()
		quiet, ok := await(answer, timer)
		if !ok {
			l.box.forget(answer)
			break
		}
		if quiet {
			return l.checkRefused()
		}
	}
	// The timeout has passed. Check the counts once more: the loop may have become idle without
	// having sent its answer yet, and then all counts in the error would be zero.
	counts := l.Counts()
	if counts.isQuiet() {
		return l.checkRefused()
	}
	return &QuiesceTimeoutError{Timeout: timeout, State: l.State(), Counts: counts}
}

// checkRefused returns an error if the loop has ended and callbacks were refused since it was
// stopped.
func (l *Loop) checkRefused() error {
	if n := l.box.refusedStopping.Load() + l.box.refusedStopped.Load(); n > 0 && l.State() == Stopped {
		return fmt.Errorf("eventloop: Quiesce was called after the end of the loop, which has refused %s since its stop; "+
			"stop the producers and call Quiesce before Stop, or before main of Run returns: %w", worktext.Pluralize(int(n), "callback"), ErrStopped)
	}
	return nil
}

// await receives a value from c, unless the timer fires first. If a value is available, await
// receives it even if the timer has fired.
func await[T any](c <-chan T, timer *time.Timer) (v T, ok bool) {
	select {
	case v = <-c:
		return v, true
	default:
	}
	select {
	case v = <-c:
		return v, true
	case <-timer.C:
		return v, false
	}
}

// A QuiesceTimeoutError reports why a loop was not quiescent when the time-out of Quiesce was over.
// The program may wait longer, or stop the loop anyway; Stats then counts the offloads and handles
// that were left.
type QuiesceTimeoutError struct {
	Timeout time.Duration
	State   State
	Counts
}

func (e *QuiesceTimeoutError) Error() string {
	return fmt.Sprintf("eventloop: Quiesce: the loop was not quiescent after %v, in state %v: %v; stop the producers, let running work return, or wait longer",
		e.Timeout, e.State, e.Counts)
}

// Unwrap returns context.DeadlineExceeded.
func (e *QuiesceTimeoutError) Unwrap() error { return context.DeadlineExceeded }
