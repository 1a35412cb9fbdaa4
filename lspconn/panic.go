package lspconn

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/swansong-go/swansong/internal/panics"
)

// A PanicError reports that a callback has panicked or called runtime.Goexit.
//
// Callbacks run on goroutines of the connection, where the caller of Start cannot recover a panic.
// The connection recovers the panic and fails with a PanicError: every pending call returns that
// error, the server is terminated and reaped, and the field Failure of the connection's [Report]
// contains the error.
//
// If the connection is already closing or has failed when the callback panics, it goes on closing.
// Failure then contains the PanicError too, unless the Report was complete before the panic.
//
// If OnRequest panics, the connection answers the request of the server with an internal error.
//
// The functions passed to [NewManager] and [WithOnRestart] run on the goroutine of the caller of
// [Manager.Conn], so the connection does not recover a panic of theirs.
type PanicError struct {
	Callback string // "OnRequest", "OnNotify", "Logger", "Trace" or "Dial" of a Server, "OnClose" of a Process, "OnFailure" for the function given to WithOnFailure
	Method   string // for OnRequest and OnNotify, the method of the message; otherwise empty
	Value    any    // the value of the panic; for runtime.Goexit, an error that says so
	Stack    []byte // the stack of the panic, in the format of runtime/debug.Stack
}

// Error returns a message without the stack.
func (e *PanicError) Error() string {
	method := ""
	if e.Method != "" {
		method = ", for " + e.Method
	}
	function := "Server." + e.Callback
	switch e.Callback {
	case "OnClose":
		function = "Process.OnClose"
	case "OnFailure":
		function = "the function given to WithOnFailure"
	}
	return fmt.Sprintf("panic in %s%s: %v", function, method, e.Value)
}

// Unwrap returns Value if it is an error.
func (e *PanicError) Unwrap() error { return panics.Unwrap(e.Value) }

// catchPanic calls f. It then passes the panic of f to done, or nil if f returned. It calls done
// even if f called runtime.Goexit.
func (c *Conn) catchPanic(callback, method string, f func(), done func(*PanicError)) {
	panics.Catch(f, func(value any, stack []byte) {
		if value == nil {
			done(nil)
			return
		}
		p := &PanicError{Callback: callback, Method: method, Value: value, Stack: stack}
		c.recordPanic(p)
		done(p)
	})
}

// recordPanic logs the panic of a callback. The first panic makes the connection fail, or is added
// to the report if the connection is already closing or has failed.
func (c *Conn) recordPanic(p *PanicError) {
	c.mu.Lock()
	if c.panic == nil {
		c.panic = p
		close(c.panicked)
	}
	c.mu.Unlock()
	if p.Callback != "Logger" {
		c.log(func(log *slog.Logger) {
			log.Error("lspconn: "+p.Error(), "server", c.server.Name, "stack", string(p.Stack))
		})
	}
}

// panicFailure returns the first panic as the reason why the connection fails, or nil if the
// connection has been stopped.
func (c *Conn) panicFailure() error {
	if c.scope.Err() != nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.panic
}

// withPanic returns err joined with the first panic, if there was one. The caller holds c.mu.
func (c *Conn) withPanic(err error) error {
	switch {
	case c.panic == nil || errors.Is(err, c.panic):
		return err
	case err == nil:
		return c.panic
	}
	return fmt.Errorf("%w; %w", err, c.panic)
}

// log calls the function write with the Logger, if there is one. The caller holds no lock, since
// the Logger's handler may call methods of the connection.
func (c *Conn) log(write func(*slog.Logger)) {
	if c.server.Logger != nil {
		c.callSafely("Logger", func() {
			logger := c.server.Logger
			if c.server.key != "" {
				logger = logger.With("key", c.server.key)
			}
			write(logger)
		}, func() {})
	}
}

// callSafely calls f on a goroutine of its own, so that a runtime.Goexit in it ends no other
// goroutine, and waits for it. If f has panicked, callSafely then calls onPanic.
func (c *Conn) callSafely(callback string, f, onPanic func()) {
	panicked := make(chan bool)
	go c.catchPanic(callback, "", f, func(p *PanicError) { panicked <- p != nil })
	if <-panicked {
		onPanic()
	}
}
