package lspconn

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Error codes of JSON-RPC and LSP that this package uses itself.
const (
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternalError  = -32603
	CodeRequestFailed  = -32803 // a message was refused or discarded because the connection is closing or has failed

	CodeRequestCancelled = -32800 // the server has cancelled its own request
)

// A ResponseError is the error of a JSON-RPC response. The server sent it, or this package returns
// it for a message that could not be sent.
type ResponseError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *ResponseError) Error() string { return fmt.Sprintf("%s (%d)", e.Message, e.Code) }

// ErrClosing matches the error of every message that is refused or discarded because the connection
// is closing, is closed or has failed.
var ErrClosing error = &ResponseError{Code: CodeRequestFailed, Message: "connection closing"}

// ErrSuperseded is the outcome of a notification that a newer one with the same key replaced.
var ErrSuperseded error = &ResponseError{Code: CodeRequestFailed, Message: "the notification was superseded by a later one with the same key"}

// A ConnError reports why a message could not be sent or was not answered. It matches its Cause and
// [ErrClosing], which is a [*ResponseError] with CodeRequestFailed.
type ConnError struct {
	Name   string // the connection's name; empty if the Manager has not started a connection
	Key    string // the key of the connection in its Manager; empty without one
	Method string // the method of the message that failed; empty if the error does not concern a message
	State  State
	Cause  error  // why the connection failed; nil if the connection was closed
	Exit   *Exit  // the exit status of the server's process; nil if it is unknown
	Stderr string // the end of what the server wrote to stderr, as in a Report
}

// Error returns one line: the key and the name, the method, the cause, the exit status unless the
// cause contains it, and the line of Stderr that most likely says what went wrong.
func (e *ConnError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "lspconn: %s", label(e.Key, e.Name))
	if e.Method != "" {
		fmt.Fprintf(&b, ": %s", e.Method)
	}
	if e.Cause == nil {
		fmt.Fprintf(&b, ": %v", ErrClosing)
	} else {
		fmt.Fprintf(&b, ": connection failed: %v", e.Cause)
	}
	var exit *ExitError
	if e.Exit != nil && !errors.As(e.Cause, &exit) { // the text of an ExitError already contains the exit status
		fmt.Fprintf(&b, "; process: %v", e.Exit)
	}
	if line := errorLine(e.Stderr); line != "" {
		fmt.Fprintf(&b, "; stderr: %q", line)
	}
	return b.String()
}

// Unwrap returns ErrClosing and Cause.
func (e *ConnError) Unwrap() []error {
	if e.Cause == nil {
		return []error{ErrClosing}
	}
	return []error{ErrClosing, e.Cause}
}

// A ProtocolError reports output of the server after which the connection cannot go on: broken
// framing, a body that is not JSON, or a message, an id or a number of requests beyond a limit.
type ProtocolError struct {
	What string // the offending output, such as "a header without Content-Length"
	Err  error  // the underlying error, or nil
}

func (e *ProtocolError) Error() string {
	if e.Err == nil {
		return "protocol violation by the server: " + e.What
	}
	return "protocol violation by the server: " + e.What + ": " + e.Err.Error()
}

// Unwrap returns Err.
func (e *ProtocolError) Unwrap() error { return e.Err }

// An ExitError is the failure of a connection whose server exited without being asked to.
type ExitError struct{ Exit Exit }

func (e *ExitError) Error() string { return "the server exited unexpectedly: " + e.Exit.String() }
