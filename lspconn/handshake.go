package lspconn

import (
	"errors"
	"fmt"
	"io"
	"time"
)

var (
	errStuck     = errors.New("the server has stopped reading: queued messages could not be written in time")
	errHandshake = errors.New("the server did not answer shutdown in time")
)

// drainQueue is the first step of closing a connection. It waits until all queued messages have
// been written, and ends the write loop; no new message can be queued any more. It returns nil if
// shutdown can be written next.
func (c *Conn) drainQueue(until time.Time) error {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-c.queueScope.Completion().Done():
	case <-t.C:
		return errStuck
	case <-c.process.Exited():
		return io.EOF
	case <-c.readDone:
		return c.readErr
	case <-c.writeDone:
		return c.writeErr
	}
	c.stopWriting()
	// Wait for the write loop: handlers may have queued responses after the queue was found empty.
	select {
	case <-c.writeDone:
		return c.writeErr
	case <-t.C:
		return errStuck
	case <-c.process.Exited():
		return io.EOF
	}
}

// sendShutdown is the second step of closing a connection. It returns nil if the server has
// answered shutdown. Other goroutines write at this point only to answer or reject requests of the
// server.
func (c *Conn) sendShutdown(until time.Time) error {
	id, shutdown := c.newCall("shutdown")
	written := make(chan error, 1)
	go func() { written <- c.out.write(frame(id, "shutdown", nil)) }()
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	for {
		select {
		case err := <-written:
			if err != nil {
				return fmt.Errorf("cannot write to the server: %w", err)
			}
			written = nil
		case r := <-shutdown.response:
			if r.err != nil {
				return fmt.Errorf("the server refused shutdown: %w", r.err)
			}
			return nil
		case <-t.C:
			return errHandshake
		case <-c.process.Exited():
			return io.EOF
		case <-c.readDone:
			return c.readErr
		}
	}
}

// sendExit is the third step of closing a connection. Nothing is written after the exit
// notification.
func (c *Conn) sendExit(until time.Time) {
	written := make(chan struct{})
	go func() {
		c.out.writeLast(frame(-1, "exit", nil))
		close(written)
	}()
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-written:
	case <-t.C: // the write may still block; the caller of sendExit closes stdin next, which makes it fail
	case <-c.process.Exited():
	}
}
