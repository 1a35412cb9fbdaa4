package eventloop

import (
	"context"
	"fmt"
	"time"
)

// Counts say what is going on in and around a loop.
type Counts struct {
	Queued   int    // callbacks accepted and not over, the one that is running included
	Offloads int    // offloads whose work has not returned, those that timed out included
	Handles  int    // handles that are held
	Timers   int    // timers that are pending
	In       string // "init" or "timer" while the loop runs a function of that kind, which is none of the queued; else ""
}

// Counts returns what is going on. The figures may be of slightly different moments, but where all but Timers are zero, they
// were so at one moment.
func (l *Loop) Counts() Counts {
	l.box.mu.Lock()
	c := l.box.counts()
	l.box.mu.Unlock()
	c.Timers = l.timers.pending()
	return c
}

// quiet is what Quiesce waits for.
func (c Counts) quiet() bool {
	c.Timers = 0
	return c == Counts{}
}

func (c Counts) String() string {
	s := fmt.Sprintf("%d queued, %d offloads running, %d handles held, %d timers pending", c.Queued, c.Offloads, c.Handles, c.Timers)
	if c.In != "" {
		s += fmt.Sprintf(", running a function of the kind %q", c.In)
	}
	return s
}

// Quiesce waits until the loop has nothing to run, none of its offloads is running and no handle is held, all at one
// moment; else it returns a [*QuiesceTimeoutError] after timeout. Timers that are pending are not waited for. It stops
// nothing and nobody: producers must have been told before, or it means little.
//
// There is no default for timeout: only the program knows how long its producers take to settle. Zero or less asks
// whether the loop is quiescent now. Then and before the start, when nothing can be queued, it still asks for handles;
// after the stop, for handles and for offloads that came too late. In whatever the loop runs it always times out.
func (l *Loop) Quiesce(timeout time.Duration) error {
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
			return nil
		}
	}
	// We look for ourselves: a loop that has nothing to run may not have come to say so yet, and an error would name nobody.
	counts := l.Counts()
	if counts.quiet() {
		return nil
	}
	return &QuiesceTimeoutError{Timeout: timeout, State: l.State(), Counts: counts}
}

// await receives from c, unless the timer fires first. What can be received has been by then, however late we are.
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

// A QuiesceTimeoutError says that a loop was not quiescent in time, and what it was busy with then. Find out who has not
// let go, or decide on a longer limit, and try again; to stop the loop all the same is not wrong, but the Stats will tell.
type QuiesceTimeoutError struct {
	Timeout time.Duration
	State   State
	Counts
}

func (e *QuiesceTimeoutError) Error() string {
	return fmt.Sprintf("eventloop: not quiescent after %v in state %v: %v; stop those who still post, have what runs return, or wait longer",
		e.Timeout, e.State, e.Counts)
}

// Unwrap returns context.DeadlineExceeded.
func (e *QuiesceTimeoutError) Unwrap() error { return context.DeadlineExceeded }
