package client

import (
	"context"
	"time"
)

// A drainContext is the context of a drain. Its deadline can move.
type drainContext struct {
	context.Context // ends at the deadline of the coordinator, with the cause ErrDeadline
	coordinator     *ShutdownCoordinator
}

// withDeadline returns a context that ends at the deadline of the coordinator, and a function that
// stops the timer of that deadline. At the deadline, the timer calls the function cut, which
// cancels ctx.
func (c *ShutdownCoordinator) withDeadline(ctx context.Context, cut context.CancelCauseFunc) (context.Context, func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadlineTimer = time.AfterFunc(time.Until(c.deadline), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		// If time is left until the deadline, setDeadline has moved the deadline while this timer
		// fired, and has set the timer again.
		if time.Until(c.deadline) <= 0 {
			cut(ErrDeadline)
		}
	})
	return drainContext{ctx, c}, c.deadlineTimer.Stop
}

// setDeadline moves the deadline of the drain. c.mu is held.
func (c *ShutdownCoordinator) setDeadline(t time.Time) {
	c.deadline = t
	if c.deadlineTimer != nil {
		c.deadlineTimer.Reset(time.Until(t))
	}
}

// Deadline returns the time at which the launcher will end the process, as the process was told
// last, or the deadline of the parent if that is earlier.
func (d drainContext) Deadline() (time.Time, bool) {
	d.coordinator.mu.Lock()
	defer d.coordinator.mu.Unlock()
	deadline := d.coordinator.deadline
	if parent, ok := d.Context.Deadline(); ok {
		deadline = minTime(deadline, parent)
	}
	return deadline, true
}

// Err returns [context.DeadlineExceeded] at the deadline, as a context with a deadline does.
func (d drainContext) Err() error {
	err := d.Context.Err()
	if err != nil && context.Cause(d.Context) == ErrDeadline {
		return context.DeadlineExceeded
	}
	return err
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
