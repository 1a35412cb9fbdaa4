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

// live is the life of a connection, in one goroutine.
func (c *Conn) live() {
	stopForce := context.AfterFunc(c.scope.Work(), func() { // Force
		c.link.End(proc.Deadlines{GiveUp: time.Now()})
	})
	defer stopForce()

	failure := c.initialize()
	writing := failure == nil && c.State() == Ready
	if writing {
		go c.write()
		failure = c.serve()
	}
	begin := time.Now()
	own := c.deadlineFrom(begin)
	c.mu.Lock()
	before := c.state
	if failure == nil {
		c.become(Closing)
		c.closing = true
	} else {
		c.failure, c.failedAt = failure, begin
		c.become(Failed)
	}
	if c.deadline.IsZero() {
		c.deadline = own
	}
	after, deadline := c.state, c.deadline
	c.seal()
	if c.server.Discard || !writing || failure != nil {
		c.disposeQueue()
	}
	c.mu.Unlock()
	c.moved(before, after)
	c.scope.ShutdownCause(failure)
	c.end(newPlan(begin, deadline), writing && failure == nil)
}

// errInitialize is the cause where the server has not answered initialize in time.
var errInitialize = errors.New("the server has not answered initialize in time")

// initialize returns nil when the connection is Ready or has been told to stop, else what has failed.
func (c *Conn) initialize() error {
	id := c.lastID.Add(1)
	c.mu.Lock()
	greeting := &call{answer: make(chan answer, 1), guard: c.called.Guard()}
	c.calls[id] = greeting
	c.mu.Unlock()
	written := make(chan error, 1)
	go func() { written <- c.pen.write(frame(id, "initialize", c.server.Initialize)) }()
	limit := time.NewTimer(c.server.InitializeTimeout)
	defer limit.Stop()
	for {
		select {
		case err := <-written:
			if err == nil {
				written = nil
				continue
			}
			return c.broken(fmt.Errorf("cannot write to the server: %w", err))
		case a := <-greeting.answer:
			if a.err != nil {
				return fmt.Errorf("the server refuses initialize: %w", a.err)
			}
			if c.scope.Err() != nil {
				return nil
			}
			c.mu.Lock()
			c.result = a.result
			c.outbox.link(nil, notice("initialized", json.RawMessage("{}"), c.queued.Guard()))
			c.become(Ready)
			c.mu.Unlock()
			c.moved(Initializing, Ready)
			return nil
		case <-c.scope.Done():
			return nil
		case <-c.readEnd:
			return c.broken(c.readErr)
		case <-c.link.Exited():
			return c.broken(io.EOF)
		case <-c.panicEnd:
			return c.panicked()
		case <-limit.C:
			return fmt.Errorf("%w, which is %v", errInitialize, c.server.InitializeTimeout)
		}
	}
}

// serve returns nil when the connection has been told to stop, else what has failed.
func (c *Conn) serve() error {
	select {
	case <-c.scope.Done():
		return nil
	case <-c.readEnd:
		return c.broken(c.readErr)
	case <-c.writeEnd:
		return c.broken(c.writeErr)
	case <-c.panicEnd:
		return c.panicked()
	case <-c.link.Exited():
		return c.broken(io.EOF)
	}
}

// errEOF is the cause where a server has closed its stdout and runs on.
var errEOF = errors.New("the server has closed its output")

// broken returns what has failed where a pipe has. A pipe ends a moment before the process does, which tells more.
func (c *Conn) broken(err error) error {
	if c.scope.Err() != nil {
		return nil
	}
	var broken *ProtocolError
	if errors.As(err, &broken) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	soon := time.Now().Add(c.grace())
	if !c.exits(soon) {
		if err == io.EOF {
			err = errEOF
		}
		return err
	}
	soon = time.Now().Add(c.grace())
	if _, late := c.link.End(proc.Deadlines{Kill: soon, GiveUp: soon.Add(c.grace())}); late != nil {
		return err
	}
	c.rest(soon)
	return c.ended()
}

// ended returns how a server has ended that nobody had told to, with what it said last if that was no message. The process
// has been reaped, and what it wrote has been read, as far as it could be.
func (c *Conn) ended() error {
	exit := &ExitError{*exitOf(c.link.Exit())}
	var broken *ProtocolError
	if isClosed(c.readEnd) && errors.As(c.readErr, &broken) {
		return fmt.Errorf("%w; %w", exit, broken)
	}
	return exit
}

// grace is how long a process may take to end after its pipes have.
func (c *Conn) grace() time.Duration { return c.server.CloseTimeout / 20 }

// pipeEnded reports whether err is the end of a pipe, which comes a moment before that of the process.
func pipeEnded(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.EPIPE)
}

func (c *Conn) exits(by time.Time) bool {
	t := time.NewTimer(time.Until(by))
	defer t.Stop()
	select {
	case <-c.link.Exited():
		return true
	case <-t.C:
		return false
	}
}
