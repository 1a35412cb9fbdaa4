package lspconn

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/swansong-go/swansong/internal/unwind"
)

// A PanicError says that a callback of a [Server] has panicked, or ended its goroutine by runtime.Goexit. Callbacks run on
// goroutines of the connection, where nobody but it could recover; so that nothing is swallowed, and the program still
// drains, the connection fails with this error as its cause: everybody who waits for an answer has it, the server is
// terminated and reaped, and the report names it. While the connection is closing, or has failed, that goes on as before,
// and the report names the panic besides. A request of the server's is answered in any case, by an internal error.
//
// The function of [NewManager] runs on the goroutine of the caller, who gets its panic as it is.
type PanicError struct {
	Callback string // "OnRequest", "OnNotify" or "Logger"
	Method   string // that it was called for; empty for the logger
	Value    any    // what it panicked with; an error that says so where it was runtime.Goexit
	Stack    []byte // where, as of runtime/debug.Stack
}

// Error has all but the stack.
func (e *PanicError) Error() string {
	at := ""
	if e.Method != "" {
		at = ", for " + e.Method
	}
	return fmt.Sprintf("panic in Server.%s%s: %v", e.Callback, at, e.Value)
}

// Unwrap returns the value, if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// protect calls f, and then, also where f has called Goexit, with what it has panicked with, nil if it has not.
func (c *Conn) protect(callback, method string, f func(), then func(*PanicError)) {
	unwind.Catch(f, func(value any, stack []byte) {
		if value == nil {
			then(nil)
			return
		}
		p := &PanicError{Callback: callback, Method: method, Value: value, Stack: stack}
		c.blame(p)
		then(p)
	})
}

// blame makes the first panic what the connection fails of, or what its report names besides.
func (c *Conn) blame(p *PanicError) {
	c.mu.Lock()
	if c.panic == nil {
		c.panic = p
		close(c.panicEnd)
	}
	c.mu.Unlock()
	if p.Callback != "Logger" {
		c.log(func(log *slog.Logger) {
			log.Error("lspconn: "+p.Error(), "server", c.server.Name, "stack", string(p.Stack))
		})
	}
}

// panicked returns what the connection fails of, nil where it is told to stop anyway.
func (c *Conn) panicked() error {
	if c.scope.Err() != nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.panic
}

// withPanic returns err with the panic, if there was one; c.mu is held.
func (c *Conn) withPanic(err error) error {
	switch {
	case c.panic == nil || errors.Is(err, c.panic):
		return err
	case err == nil:
		return c.panic
	}
	return fmt.Errorf("%w; %w", err, c.panic)
}

// log has the logger told something. No lock is held: a handler may ask the connection. It has a goroutine of its own,
// which is all that a Goexit in it ends.
func (c *Conn) log(tell func(*slog.Logger)) {
	if c.server.Logger == nil {
		return
	}
	done := make(chan struct{})
	go c.protect("Logger", "", func() { tell(c.server.Logger) }, func(*PanicError) { close(done) })
	<-done
}
