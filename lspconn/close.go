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

// Close closes the connection and waits until it is Closed, its deadline has passed, or ctx ends; the closing goes on
// then. It may be called any number of times, and every call returns the same report. See the package's comment for what it
// does and when.
//
// The error is nil if the process has been reaped, however it came to its end: the report tells. It matches
// [ErrUnconfirmed] if that is not known at the deadline, and is the cause of ctx if that ended first.
func (c *Conn) Close(ctx context.Context) (Report, error) { return c.closeBy(ctx, time.Time{}) }

// ErrUnconfirmed is matched by the error of Close where the process is not known to have ended.
var ErrUnconfirmed = proc.ErrUnconfirmed

// closeBy is Close that waits until a deadline, if it is not zero, and no longer.
func (c *Conn) closeBy(ctx context.Context, deadline time.Time) (Report, error) {
	own := c.deadlineFrom(time.Now()) // where that is a manager's, so is deadline
	c.mu.Lock()
	before := c.state
	if !c.closing {
		c.closing = true
		if c.deadline.IsZero() { // from now on, also where live comes to it later
			c.deadline = own
		}
		if c.state == Failed && c.exit != nil && isClosed(c.settled) {
			c.become(Closed)
		}
	}
	after, fixed := c.state, c.deadline
	c.mu.Unlock()
	c.moved(before, after)
	if !deadline.IsZero() && fixed.After(deadline) { // see decide
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, deadline, ErrUnconfirmed)
		defer cancel()
	}
	c.scope.ShutdownCause(ErrClosing)
	select {
	case <-c.settled:
	case <-ctx.Done():
		if !isClosed(c.settled) { // what is known is told, also to those who are late
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

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// become changes the state; c.mu is held. Whoever calls it calls moved when it is not.
func (c *Conn) become(next State) {
	if !c.state.may(next) {
		panic(fmt.Sprintf("lspconn: no way from %v to %v", c.state, next))
	}
	if c.state == Initializing {
		defer close(c.ready)
	}
	c.state = next
}

// moved tells the Logger of a change of state. c.mu is not held, since the Logger's handler may want it.
func (c *Conn) moved(from, to State) {
	if from != to {
		c.log(func(log *slog.Logger) {
			log.Debug("lspconn: "+to.String(), "server", c.server.Name, "from", from.String())
		})
	}
}

// A plan is the marks of a closing.
type plan struct {
	begin, drained, answered, terminate, kill, giveUp time.Time
}

// gap is the time between SIGTERM and SIGKILL, and from there to giving up.
func (p plan) gap() time.Duration { return p.giveUp.Sub(p.kill) }

func newPlan(begin, deadline time.Time) plan {
	at := func(tenths time.Duration) time.Time { return begin.Add(deadline.Sub(begin) * tenths / 10) }
	return plan{begin, at(2), at(6), at(8), at(9), deadline}
}

// eof returns when to close the stdin of a server that was told exit at now and is still there. Not at once: a server that is
// on its way out may trip over it (vscode-eslint-language-server leaves with code 0 after a second, or crashes). Not never:
// there are those that wait for it.
func (p plan) eof(now time.Time) time.Time {
	return earlier(now.Add(p.giveUp.Sub(p.begin)/5), now.Add(p.terminate.Sub(now)/2))
}

// disposeQueue fails what is queued, and what will be; c.mu is held.
func (c *Conn) disposeQueue() {
	c.outbox.disposed = true
	for _, l := range c.outbox.empty() {
		c.dispose(l)
	}
}

// end brings the process to its end, and answers everybody.
func (c *Conn) end(p plan, handshake bool) {
	var trouble error
	early := isClosed(c.link.Exited())
	now := p.begin
	drained, answered := now, now
	timedOut := false
	if handshake {
		trouble = c.drain(p.drained)
		drained = time.Now()
		if trouble == nil {
			trouble = c.shutdown(p.answered)
			timedOut = errors.Is(trouble, errHandshake)
		}
		answered = time.Now()
		early = isClosed(c.link.Exited()) || pipeEnded(trouble) && c.exits(answered.Add(c.grace()))
	}
	at := proc.Deadlines{Terminate: p.terminate, Kill: p.kill, GiveUp: p.giveUp}
	if handshake && (trouble == nil || timedOut) && !early {
		c.exitNotification(p.terminate)
		c.exits(p.eof(time.Now()))
	} else {
		at.Terminate = time.Time{}
		at.Kill = earlier(time.Now().Add(p.gap()), p.kill)
	}
	c.link.Stdin().Close()
	c.stopWriter()
	exit, err := c.link.End(at)

	c.mu.Lock()
	c.disposeQueue()
	c.mu.Unlock()
	r := Report{Name: c.server.Name, Failure: trouble, Survivors: names(exit.Survivors), Left: names(exit.Left),
		Drain: drained.Sub(p.begin), Handshake: answered.Sub(drained), Leave: time.Since(answered)}
	switch {
	case err != nil:
		r.Outcome = Unconfirmed
	case exit.Killed && exit.Signal == syscall.SIGKILL: // Force sends both signals, and the first may do
		r.Outcome = Killed
	case exit.Terminated:
		r.Outcome = Terminated
	case early || !handshake:
		r.Outcome = ExitedEarly
	case trouble != nil:
		r.Outcome = HandshakeTimeout
	}
	if err == nil {
		c.rest(p.giveUp)
		r.Exit = exitOf(exit)
		if early {
			r.Failure = c.ended()
		}
		if trouble == io.EOF && !early {
			r.Failure = errEOF
		}
		if work := c.scope.Work(); exit.Killed && work.Err() != nil {
			r.Failure = fmt.Errorf("cut short: %w", context.Cause(work))
		}
	}
	c.mu.Lock()
	c.unconfirmed = err
	c.mu.Unlock()
	c.settle(r, p)
	if err != nil {
		<-c.link.Done()
		c.mu.Lock()
		c.exit = exitOf(c.link.Exit())
		c.mu.Unlock()
		c.rest(time.Now().Add(p.gap()))
	}
	c.link.Close()
	c.mu.Lock()
	before := c.state
	if c.closing && c.state != Closed {
		c.become(Closed)
	}
	after := c.state
	c.mu.Unlock()
	c.moved(before, after)
	c.held.Release()
	c.scope.Force(ErrClosing) // handlers that are still at it are told
	close(c.done)
}

// settle publishes the report and answers whoever is still waiting.
func (c *Conn) settle(r Report, p plan) {
	c.mu.Lock()
	c.exit = r.Exit
	r.Stray = c.report.Stray
	r.Stderr = c.stderr.String()
	if c.failure != nil {
		r.Failure = c.failure
	}
	r.Failure = c.withPanic(r.Failure)
	r.Total = time.Since(p.begin)
	c.report = r
	for id, waiting := range c.calls {
		c.answer(id, answer{err: c.problem(waiting.method)})
	}
	c.mu.Unlock()
	c.log(func(log *slog.Logger) { log.Info("lspconn: ended", "server", r.Name, "report", r) })
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.Failure = c.withPanic(c.report.Failure) // the logger may have panicked just now
	close(c.settled)
}

// rest waits until all that the server wrote has been read.
func (c *Conn) rest(until time.Time) {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	for _, end := range []chan struct{}{c.readEnd, c.stderrEnd} {
		select {
		case <-end:
		case <-t.C: // a platform without deadlines on pipes, and somebody who holds them; or a handler that blocks the reader
			c.link.Close()
			return
		}
	}
}

var (
	errStuck     = errors.New("the server has stopped reading: its queue could not be written in time")
	errHandshake = errors.New("the server has not answered shutdown in time")
)

// drain is the first two phases of the hand-over: the queue, in which nothing is put any more, is written, and the writer
// then ends, idle. It returns nil if what follows may be written.
func (c *Conn) drain(until time.Time) error {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-c.queued.Completion().Done():
	case <-t.C:
		return errStuck
	case <-c.link.Exited():
		return io.EOF
	case <-c.readEnd:
		return c.readErr
	case <-c.writeEnd:
		return c.writeErr
	}
	c.stopWriter()
	<-c.writeEnd
	return c.writeErr
}

// shutdown is the third phase: nobody but us, and whoever answers a request of the server, has the pen. It returns nil if
// the server has answered.
func (c *Conn) shutdown(until time.Time) error {
	id := c.lastID.Add(1)
	c.mu.Lock()
	goodbye := &call{method: "shutdown", answer: make(chan answer, 1), guard: c.called.Guard()}
	c.calls[id] = goodbye
	c.mu.Unlock()
	written := make(chan error, 1)
	go func() { written <- c.pen.write(frame(id, "shutdown", nil)) }()
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	for {
		select {
		case err := <-written:
			if err != nil {
				return fmt.Errorf("cannot write to the server: %w", err)
			}
			written = nil
		case a := <-goodbye.answer:
			if a.err != nil {
				return fmt.Errorf("the server refuses shutdown: %w", a.err)
			}
			return nil
		case <-t.C:
			return errHandshake
		case <-c.link.Exited():
			return io.EOF
		case <-c.readEnd:
			return c.readErr
		}
	}
}

// exitNotification sends exit. Nothing is written after it.
func (c *Conn) exitNotification(until time.Time) {
	written := make(chan struct{})
	go func() {
		c.pen.retire(frame(-1, "exit", nil))
		close(written)
	}()
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-written:
	case <-t.C: // closing stdin has to do
	case <-c.link.Exited():
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// deadlineFrom returns the deadline of a closing that begins now, where none has been fixed before.
func (c *Conn) deadlineFrom(now time.Time) time.Time {
	if c.manager != nil {
		if deadline, stopped := c.manager.stopped(); stopped {
			return deadline
		}
	}
	return now.Add(c.server.CloseTimeout)
}

// decide fixes the deadline of a closing, at now. One that has begun by a later deadline of its own is cut short.
func (c *Conn) decide(now, deadline time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.deadline.IsZero():
		c.deadline = deadline
	case c.deadline.After(deadline):
		time.AfterFunc(newPlan(now, deadline).kill.Sub(now), func() { c.scope.Force(ErrClosing) }) // where others are killed
	}
}

// failed returns when the connection has failed, if it has.
func (c *Conn) failed() (at time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failedAt, c.failure != nil
}
