package lspconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
)

// terminate ends the server's process, publishes the report and completes every call. If handshake
// is true, terminate first sends shutdown and exit to the server, unless Force is called.
func (c *Conn) terminate(s schedule, handshake bool) {
	handshake = handshake && !c.isForced() && (c.external == nil || c.canLeave())
	h := c.shakeHands(s, handshake)
	at := proc.Deadlines{Terminate: s.terminate, Kill: s.kill, GiveUp: s.giveUp}
	if handshake && (h.err == nil || errors.Is(h.err, errHandshake)) && !h.exitedEarly {
		if c.external == nil {
			c.sendExit(s.terminate)
		}
		c.awaitExit(s.closeStdin(time.Now()))
	} else {
		at.Terminate = time.Time{} // the zero time makes End send SIGTERM at once
		at.Kill = earlier(time.Now().Add(s.killInterval()), s.kill)
	}
	if c.isForced() {
		at = proc.Deadlines{GiveUp: s.giveUp}
		// Send SIGKILL before closing stdin: the server might exit by itself when stdin is closed.
		c.process.End(proc.Deadlines{})
	}
	c.process.Stdin().Close()
	c.stopWriting()
	exit, err := c.process.End(at)
	h.forced = c.isForced() && (exit.Killed || err != nil)

	c.mu.Lock()
	c.discardQueue(true)
	c.mu.Unlock()
	c.publishReport(c.newReport(s, h, exit, err), err, s)
	if err != nil {
		<-c.process.Done()
		c.mu.Lock()
		c.exit = exitOf(c.process.Exit())
		c.mu.Unlock()
		c.awaitOutput(time.Now().Add(s.killInterval()), c.readDone, c.stderrDone, c.inbox.delivered)
	}
	c.process.Close()
	c.mu.Lock()
	before := c.state
	if c.closing && c.state != Closed {
		c.setState(Closed)
	}
	after := c.state
	c.mu.Unlock()
	c.logState(before, after)
	c.processGuard.Release()
	c.scope.Force(ErrClosing) // Force ends the context of the handlers that are still running
	close(c.done)
}

// A handshake records what happened when the queue was written and shutdown was sent.
type handshake struct {
	attempted         bool
	err               error     // why the server did not answer shutdown; nil if it did, or if shutdown was not sent
	exitedEarly       bool      // the server exited before the connection sent it the exit notification
	forced            bool      // Force cut the closing short
	drained, answered time.Time // when the writing of the queue ended, and the wait for the answer to shutdown, also if they failed
}

func (c *Conn) shakeHands(s schedule, attempt bool) handshake {
	h := handshake{attempted: attempt, drained: s.begin, answered: s.begin}
	h.exitedEarly = isClosed(c.process.Exited())
	if !attempt {
		return h
	}
	if c.external != nil {
		h.err = c.askToLeave(s.answered)
		h.answered = time.Now()
		// A server that crashes ends its output shortly before it exits. So an error of the
		// function of OnClose may mean that the server has crashed, and awaitExit gives it time to
		// exit.
		h.exitedEarly = h.err != nil && h.err != errHandshake && c.awaitExit(h.answered.Add(c.exitDelay()))
	} else {
		h.err = c.drainQueue(s.drained)
		h.drained = time.Now()
		if h.err == nil {
			h.err = c.sendShutdown(s.answered)
		}
		h.answered = time.Now()
		h.exitedEarly = isClosed(c.process.Exited()) || isPipeEnd(h.err) && c.awaitExit(h.answered.Add(c.exitDelay()))
	}
	c.mu.Lock()
	c.handshake = h
	c.mu.Unlock()
	return h
}

// isForced reports whether Force was called, on the scope of the connection or on a parent scope.
func (c *Conn) isForced() bool {
	if c.forcing.Load() {
		<-c.scope.Work().Done() // Force stops the scope first, and ends its Work a moment later
	}
	return c.scope.Work().Err() != nil
}

// newReport returns the report of a connection that is closing, after serverProcess.End has
// returned exit and endErr.
func (c *Conn) newReport(s schedule, h handshake, exit proc.Exit, endErr error) Report {
	r := Report{
		Name: c.server.Name, Key: c.server.key, Outcome: outcome(h, exit, endErr), Failure: h.err,
		Survivors: memberNames(exit.Survivors), Left: memberNames(exit.Left),
		Drain: h.drained.Sub(s.begin), Handshake: h.answered.Sub(h.drained), Leave: time.Since(h.answered),
	}
	if h.forced {
		r.Failure = c.forceFailure()
	}
	if endErr != nil {
		return r
	}
	c.awaitOutput(s.giveUp, c.readDone, c.stderrDone, c.inbox.delivered)
	r.Exit = exitOf(exit)
	if h.forced {
		return r
	}
	if h.exitedEarly {
		r.Failure = c.exitFailure()
	} else if h.err == io.EOF {
		r.Failure = errEOF
	}
	return r
}

// forceFailure returns the failure in the report of a connection for which Force was called.
func (c *Conn) forceFailure() error {
	return fmt.Errorf("closing was cut short by Force: %w", context.Cause(c.scope.Work()))
}

func outcome(h handshake, exit proc.Exit, endErr error) Outcome {
	switch {
	case endErr != nil:
		return Unconfirmed
	// Both SIGTERM and SIGKILL may have been sent, so check which of them ended the process.
	case exit.Killed && exit.Signal == syscall.SIGKILL:
		return Killed
	case exit.Terminated:
		return Terminated
	case h.exitedEarly || !h.attempted:
		return ExitedEarly
	case h.err != nil:
		return HandshakeTimeout
	}
	return Clean
}

// publishReport makes the report available to Close and answers the calls that have no response
// yet.
func (c *Conn) publishReport(r Report, unconfirmed error, s schedule) {
	c.mu.Lock()
	c.unconfirmed = unconfirmed
	c.exit = r.Exit
	r.Stray = c.report.Stray
	r.Stderr = c.stderr.String()
	if c.failure != nil {
		r.Failure = c.failure
	}
	r.Failure = c.withPanic(r.Failure)
	r.Total = time.Since(s.begin)
	c.report = r
	for id, waiting := range c.calls {
		c.respond(id, response{err: c.connError(waiting.method)})
	}
	c.mu.Unlock()
	c.log(func(log *slog.Logger) { log.Info("lspconn: ended", "server", r.Name, "report", r) })
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.Failure = c.withPanic(c.report.Failure) // the Logger may have panicked while it logged the report
	close(c.reported)
}

// awaitOutput waits until all channels in ends are closed. They are closed when stdout or stderr
// has been read to its end, or when the last message has been delivered. At the deadline, or half
// of forceTimeout after a Force, awaitOutput closes the pipes, because the wait might not end
// otherwise: a handler may block the read loop, or, on a platform without deadlines for pipes, a
// process that survived may keep them open.
func (c *Conn) awaitOutput(deadline time.Time, ends ...chan struct{}) {
	t := time.NewTimer(time.Until(deadline))
	defer t.Stop()
	forced := c.scope.Work().Done()
	for _, ended := range ends {
		for !isClosed(ended) {
			select {
			case <-ended:
			case <-forced:
				forced = nil
				t.Reset(time.Until(earlier(deadline, c.forceTime().Add(forceTimeout/2))))
			case <-t.C:
				c.process.Close()
				return
			}
		}
	}
}

// forceTime returns the time at which a goroutine of the connection first noticed that Force was
// called.
func (c *Conn) forceTime() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.forcedAt.IsZero() {
		c.forcedAt = time.Now()
	}
	return c.forcedAt
}

// awaitExit waits until the process has exited, and reports whether it has.
func (c *Conn) awaitExit(until time.Time) bool {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-c.process.Exited():
		return true
	case <-t.C:
		return false
	}
}
