package lspconn

import (
	"context"
	"fmt"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
)

// ErrUnconfirmed matches the error of [Conn.Close] if the process is not known to have exited.
var ErrUnconfirmed = proc.ErrUnconfirmed

// Close closes the connection. It waits until the connection is Closed, its deadline has passed, or
// ctx ends; closing continues in the background after ctx has ended. The package documentation lists
// the steps and their deadlines. Close may be called any number of times; once the report is
// complete, every call returns the same one.
//
// The error is nil if the process has been reaped; the report tells how it exited. The error matches
// [ErrUnconfirmed] if that is unknown at the deadline. It wraps the cause of ctx if ctx ended first.
func (c *Conn) Close(ctx context.Context) (Report, error) { return c.closeBy(ctx, time.Time{}) }

// closeBy does what Close does, but returns at the given deadline at the latest. A zero deadline
// means no limit.
func (c *Conn) closeBy(ctx context.Context, deadline time.Time) (Report, error) {
	own := c.closeDeadline(time.Now()) // if the Manager has been stopped, this is the manager's deadline
	c.mu.Lock()
	before := c.state
	if !c.closing {
		c.closing = true
		// Set the deadline now: the goroutine in run may notice only later that the scope was
		// stopped.
		if c.deadline.IsZero() {
			c.deadline = own
		}
		if c.state == Failed && c.exit != nil && isClosed(c.reported) {
			c.setState(Closed)
		}
	}
	after, fixed := c.state, c.deadline
	c.mu.Unlock()
	c.logState(before, after)
	// limitDeadline forces the connection at the earlier deadline, so wait no longer than that.
	if !deadline.IsZero() && fixed.After(deadline) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, deadline, ErrUnconfirmed)
		defer cancel()
	}
	c.scope.ShutdownCause(ErrClosing)
	select {
	case <-c.reported:
	case <-ctx.Done():
		// Return a complete report even if ctx ended before this call.
		if !isClosed(c.reported) {
			err := fmt.Errorf("lspconn: %s is still closing: %w", c.server.Name, context.Cause(ctx))
			return Report{Name: c.server.Name, Outcome: Unconfirmed}, err
		}
	}
	c.mu.Lock()
	r, err := c.report, c.unconfirmed
	c.mu.Unlock()
	if err != nil {
		return r, fmt.Errorf("lspconn: %s: %w", c.server.Name, err)
	}
	<-c.done
	return r, nil
}

// closeDeadline returns the deadline for a connection that begins to close now and has no deadline
// yet.
func (c *Conn) closeDeadline(now time.Time) time.Time {
	if c.manager != nil {
		if deadline, stopped := c.manager.deadlineIfStopped(); stopped {
			return deadline
		}
	}
	return now.Add(c.server.CloseTimeout)
}

// limitDeadline sets the deadline by which the connection is closed. If the connection is already
// closing with a later deadline of its own, limitDeadline arranges for a Force at the time at which
// a close with the new deadline would send SIGKILL.
func (c *Conn) limitDeadline(now, deadline time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.deadline.IsZero():
		c.deadline = deadline
	case c.deadline.After(deadline):
		time.AfterFunc(newSchedule(now, deadline).kill.Sub(now), func() { c.scope.Force(ErrClosing) })
	}
}

// failed reports whether the connection has failed, and when.
func (c *Conn) failed() (at time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failedAt, c.failure != nil
}

// A schedule holds the latest times at which the steps of a close end.
type schedule struct {
	begin, drained, answered, terminate, kill, giveUp time.Time
}

func newSchedule(begin, deadline time.Time) schedule {
	at := func(tenths time.Duration) time.Time { return begin.Add(deadline.Sub(begin) * tenths / 10) }
	return schedule{begin, at(2), at(6), at(8), at(9), deadline}
}

// killInterval is the time between SIGTERM and SIGKILL, which equals the time between SIGKILL and
// the deadline.
func (s schedule) killInterval() time.Duration { return s.giveUp.Sub(s.kill) }

// closeStdin returns when to close the stdin of a server that received exit at the time now and is
// still running. Some servers exit only when stdin is closed. But closing stdin at once can make an
// exiting server fail: vscode-eslint-language-server exits with code 0 after a second if its stdin
// stays open, and might crash otherwise.
func (s schedule) closeStdin(now time.Time) time.Time {
	return earlier(now.Add(s.giveUp.Sub(s.begin)/5), now.Add(s.terminate.Sub(now)/2))
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
