package lspconn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
)

var (
	errInitialize = errors.New("the server did not answer initialize")
	errEOF        = errors.New("the server has closed its output")
)

// run is the body of a connection's main goroutine. It initializes the server, waits until the
// connection is stopped or fails, and terminates the process.
func (c *Conn) run() {
	cancelForce := context.AfterFunc(c.scope.Work(), func() { // Work ends when Force is called
		c.forceTime()
		c.process.End(proc.Deadlines{}) // sends SIGKILL and does not wait
		c.inbox.stopHandlers()
	})
	defer cancelForce()

	var failure error
	ready := c.external != nil
	if !ready {
		failure = c.initialize()
		if ready = failure == nil && c.State() == Ready; ready {
			go c.writeLoop()
		}
	}
	if ready {
		failure = c.awaitStop()
	}
	begin := time.Now()
	own := c.closeDeadline(begin)
	c.mu.Lock()
	before := c.state
	if failure == nil {
		c.setState(Closing)
		c.closing = true
	} else {
		c.failure, c.failedAt = failure, begin
		c.setState(Failed)
	}
	if c.deadline.IsZero() {
		c.deadline = own
	}
	after, deadline := c.state, c.deadline
	c.refuseCoalesced()
	if c.server.Discard || !ready || failure != nil {
		c.discardQueue(false)
	}
	c.mu.Unlock()
	c.logState(before, after)
	if failure != nil {
		c.reportFailure()
	}
	c.scope.ShutdownCause(failure)
	s := newSchedule(begin, deadline)
	stopHandlers := time.AfterFunc(time.Until(s.drained), c.inbox.stopHandlers)
	defer stopHandlers.Stop()
	c.terminate(s, ready && failure == nil)
}

// initialize sends initialize and waits for the response. It returns nil when the connection is
// Ready or has been stopped, and otherwise why it has failed.
func (c *Conn) initialize() error {
	id, initialize := c.newCall("")
	written := make(chan error, 1)
	go func() { written <- c.out.write(frame(id, "initialize", c.server.Initialize)) }()
	limit := time.NewTimer(c.server.InitializeTimeout)
	defer limit.Stop()
	for {
		select {
		case err := <-written:
			if err == nil {
				written = nil
				continue
			}
			return c.pipeFailure(fmt.Errorf("cannot write to the server: %w", err))
		case r := <-initialize.response:
			if r.err != nil {
				return fmt.Errorf("the server refused initialize: %w", r.err)
			}
			if c.scope.Err() != nil {
				return nil
			}
			c.mu.Lock()
			c.initResult = r.result
			c.queue.link(nil, newNotification("initialized", json.RawMessage("{}"), c.queueScope.Guard()))
			c.setState(Ready)
			c.writing = true
			c.mu.Unlock()
			c.logState(Initializing, Ready)
			return nil
		case <-c.scope.Done():
			return nil
		case <-c.readDone:
			return c.pipeFailure(c.readErr)
		case <-c.process.Exited():
			return c.pipeFailure(io.EOF)
		case <-c.panicked:
			return c.panicFailure()
		case <-limit.C:
			if d, ok := c.process.(*dialled); ok && !isClosed(d.opened) {
				return fmt.Errorf("Server.Dial has not returned within %v, so the server was not sent initialize", c.server.InitializeTimeout)
			}
			return fmt.Errorf("%w within %v", errInitialize, c.server.InitializeTimeout)
		}
	}
}

// awaitStop waits until the connection is stopped or fails. It returns nil if the connection was
// stopped, and otherwise why it failed.
func (c *Conn) awaitStop() error {
	readDone := c.readDone
	if c.external != nil {
		// The connection belongs to a Process, whose user may stop reading at any time. So the end
		// of reading does not mean that the server has failed.
		readDone = nil
	}
	var idle *time.Timer
	var idleTime <-chan time.Time // receives a value when the server may have been idle for IdleTimeout; nil without IdleTimeout
	if c.server.IdleTimeout > 0 {
		idle = time.NewTimer(c.server.IdleTimeout)
		defer idle.Stop()
		idleTime = idle.C
	}
	for {
		select {
		case <-c.scope.Done():
			return nil
		case <-readDone:
			return c.pipeFailure(c.readErr)
		case <-c.writeDone:
			return c.pipeFailure(c.writeErr)
		case <-c.panicked:
			return c.panicFailure()
		case <-c.process.Exited():
			return c.pipeFailure(io.EOF)
		case <-idleTime:
			if c.scope.Err() != nil {
				return nil // IdleTimeout does not apply while the connection closes
			}
			left := c.idleLeft()
			if left <= 0 {
				return fmt.Errorf("a call is waiting, but the server has sent no message for %v", c.server.IdleTimeout)
			}
			idle.Reset(left)
		}
	}
}

// pipeFailure returns why the connection failed, given the error err of a read or a write. The
// pipes of a crashing process close shortly before the process exits, and its exit status says more
// than the closed pipe. So pipeFailure waits a short time for the exit. It returns nil if the
// connection has been stopped.
func (c *Conn) pipeFailure(err error) error {
	if c.scope.Err() != nil {
		return nil
	}
	var protocol *ProtocolError
	if errors.As(err, &protocol) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	until := time.Now().Add(c.exitDelay())
	if !c.awaitExit(until) {
		if err == io.EOF {
			err = errEOF
		}
		return err
	}
	until = time.Now().Add(c.exitDelay())
	if _, late := c.process.End(proc.Deadlines{Kill: until, GiveUp: until.Add(c.exitDelay())}); late != nil {
		return err
	}
	c.awaitOutput(until, c.readDone, c.stderrDone)
	return c.exitFailure()
}

// exitFailure returns the exit status of a server that exited without being asked to. If the
// server's output ended with something that is not a message, the error includes that. The caller
// has waited until the process was reaped and its output was read.
func (c *Conn) exitFailure() error {
	exit := &ExitError{*exitOf(c.process.Exit())}
	var protocol *ProtocolError
	if isClosed(c.readDone) && errors.As(c.readErr, &protocol) {
		return fmt.Errorf("%w; %w", exit, protocol)
	}
	return exit
}

// exitDelay is the longest time to wait for a process to exit after its pipes were closed.
func (c *Conn) exitDelay() time.Duration { return c.server.CloseTimeout / 20 }

// isPipeEnd reports whether err means that the other end of a pipe has been closed.
func isPipeEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.EPIPE)
}
