package lspconn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
)

// ErrUnconfirmed matches the error of [Conn.Close] if the process is not known to have exited.
var ErrUnconfirmed = proc.ErrUnconfirmed

// forceTimeout is the longest time for which Close waits for the report after its context has
// ended. SIGKILL has been sent by then, and usually only the exit status from the kernel is
// missing. It is a variable for tests that start processes on a busy machine.
var forceTimeout = time.Second

// Close closes the connection. It waits until the connection is Closed or its deadline has passed.
// The package documentation lists the steps and their deadlines. Close may be called any number of
// times; once the report is complete, every call returns the same one.
//
// If ctx ends first, or had ended before the call, Close calls [Conn.Force] with the cause of ctx
// and returns after about a second at the latest. So a deferred Close with the context of the
// program leaves no server running, but kills a slow one. To give a server time to exit, pass a
// context that has not ended. Without a cgroup, a process that has left the process group of the
// server, and whose parent has exited, must be found in /proc. If this takes longer because the
// machine is busy, and the program exits right after Close, the process survives. The error then
// matches [ErrUnconfirmed].
//
// The error is nil if the process has been reaped; the report says how it exited. The error matches
// [ErrUnconfirmed], and names the processes that are known to be running, if the process has not
// been reaped when Close returns. If Close must return while the output of the server is still
// being read, or while the Logger blocks, the report contains what is known by then.
func (c *Conn) Close(ctx context.Context) (Report, error) {
	c.inbox.releaseFor(ctx)
	limit, stop := newCloseLimit(ctx, c.Force)
	defer stop()
	return c.closeBy(limit, time.Time{})
}

// Force closes the connection and kills the server and all processes that it has started, by
// SIGKILL, without a handshake. It does not wait; [Conn.Close] does. The report says that closing
// was cut short, and why: a nil cause means [ctxshutdown.ErrForced]. Force has no effect on a
// server that is about to exit anyway.
func (c *Conn) Force(cause error) {
	c.forcing.Store(true)
	c.scope.Force(cause)
}

// newCloseLimit returns a context that ends when forceTimeout has passed since ctx has ended. When
// ctx ends, it calls force with the cause, which kills the servers. If ctx had ended before,
// newCloseLimit calls force itself: its caller stops the scope next, and the handshake of a fast
// server could be over before another goroutine calls force.
func newCloseLimit(ctx context.Context, force func(cause error)) (limit context.Context, stop func()) {
	if ctx.Err() != nil {
		force(context.Cause(ctx))
	}
	limit, end := context.WithCancelCause(context.Background())
	timeout := forceTimeout // the function below may still run when a test sets forceTimeout again
	unregister := context.AfterFunc(ctx, func() {
		force(context.Cause(ctx))
		t := time.NewTimer(timeout)
		defer t.Stop()
		select {
		case <-t.C:
			end(context.Cause(ctx))
		case <-limit.Done():
		}
	})
	return limit, func() { unregister(); end(nil) }
}

// closeBy does what Close does, but it returns at the latest when the context limit ends, or at
// deadline, which is the deadline of the Manager. A zero deadline means that there is none.
func (c *Conn) closeBy(limit context.Context, deadline time.Time) (Report, error) {
	own := c.closeDeadline(time.Now()) // the deadline of the Manager, if the Manager has been stopped
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
	// The Manager may have an earlier deadline than the connection. Then limitDeadline arranges for
	// a Force at that deadline, so do not wait any longer here.
	if !deadline.IsZero() && fixed.After(deadline) {
		var cancel context.CancelFunc
		limit, cancel = context.WithDeadlineCause(limit, deadline, ErrUnconfirmed)
		defer cancel()
	}
	c.scope.ShutdownCause(ErrClosing)
	select {
	case <-c.reported:
	case <-limit.Done():
		// If the report is complete by now, return it, although limit has ended.
		if !isClosed(c.reported) {
			return c.unfinishedReport(context.Cause(limit))
		}
	}
	c.mu.Lock()
	r, err := c.report, c.unconfirmed
	c.mu.Unlock()
	if err != nil {
		return r, fmt.Errorf("lspconn: %s: %w", label(c.server.key, c.server.Name), err)
	}
	select {
	case <-c.done:
	case <-limit.Done(): // c.done is still open because the Logger blocks
	}
	return r, nil
}

// unfinishedReport returns what is known of a connection whose report is not complete when Close
// must return. cause says why Close must return.
func (c *Conn) unfinishedReport(cause error) (Report, error) {
	exit, err := c.process.End(proc.Deadlines{}) // sends SIGKILL once more and does not wait
	c.mu.Lock()
	r := Report{
		Name: c.server.Name, Key: c.server.key, Outcome: outcome(c.handshake, exit, err), Failure: cause,
		Survivors: memberNames(exit.Survivors), Left: memberNames(exit.Left),
		Stderr: c.stderr.String(), Stray: c.report.Stray,
	}
	c.mu.Unlock()
	switch {
	case err == nil:
		r.Exit = exitOf(exit)
		r.Failure = fmt.Errorf("Close returned before all output of the server was read and its report logged: %w", cause)
	case errors.Is(cause, ErrUnconfirmed):
		err = fmt.Errorf("lspconn: %s: %w", label(c.server.key, c.server.Name), err)
	default:
		err = fmt.Errorf("lspconn: %s: %w (Close was cut short: %w)", label(c.server.key, c.server.Name), err, cause)
	}
	return r, err
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

// limitDeadline sets the deadline of the close of this connection. If the connection is already
// closing with a later deadline, limitDeadline does not change the steps of that close. Instead it
// calls Force at the time at which a close with the new deadline would send SIGKILL.
func (c *Conn) limitDeadline(now, deadline time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.deadline.IsZero():
		c.deadline = deadline
	case c.deadline.After(deadline):
		time.AfterFunc(newSchedule(now, deadline).kill.Sub(now), func() { c.Force(ErrClosing) })
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
	tenth := deadline.Sub(begin) / 10
	reserve := max(tenth, min(killReserve, 2*tenth))
	kill := deadline.Add(-reserve)
	return schedule{begin, begin.Add(2 * tenth), begin.Add(6 * tenth), kill.Add(-tenth), kill, deadline}
}

// killReserve is how long before the deadline SIGKILL is sent, if Close has 5 to 10 seconds. If
// Close has less time, SIGKILL is sent when a fifth of it is left; with more time, when a tenth of
// it is left. On a busy machine it took up to 0.7 s until the end of a killed process was known.
const killReserve = time.Second

// killInterval is the time between SIGTERM and SIGKILL.
func (s schedule) killInterval() time.Duration { return s.kill.Sub(s.terminate) }

// closeStdin returns when to close the stdin of a server that has received the notification exit
// now and does not exit. Some servers exit only when stdin is closed. But a server that is about to
// exit can fail if stdin is closed at once: vscode-eslint-language-server exits with code 0 after a
// second if its stdin stays open, and might crash otherwise.
func (s schedule) closeStdin(now time.Time) time.Time {
	return earlier(now.Add(s.giveUp.Sub(s.begin)/5), now.Add(s.terminate.Sub(now)/2))
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
