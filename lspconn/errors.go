package lspconn

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Codes of JSON-RPC and LSP that this package itself uses.
const (
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternalError  = -32603
	CodeRequestFailed  = -32803 // refused or disposed of because the connection is closing, or has failed
)

// A ResponseError is an error as it travels in a response: what the server answered, or what this package answers in its
// place.
type ResponseError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *ResponseError) Error() string { return fmt.Sprintf("%s (%d)", e.Message, e.Code) }

// ErrClosing is what is refused, or was disposed of, matches: the connection is closing, is closed or has failed.
var ErrClosing error = &ResponseError{Code: CodeRequestFailed, Message: "connection closing"}

// ErrSuperseded is the outcome of a coalesced notification that gave way to a later one with its key.
var ErrSuperseded error = &ResponseError{Code: CodeRequestFailed, Message: "superseded by a later notification with the same key"}

// A ConnError says why a message could not be sent or was not answered. It matches [ErrClosing], and so a [*ResponseError]
// with CodeRequestFailed, and its Cause.
type ConnError struct {
	Name   string // the connection's
	Method string // empty where no message is concerned
	State  State
	Cause  error  // what made the connection fail; nil where it was closed
	Exit   *Exit  // how the process ended, where that is known
	Stderr string // the last lines that the process wrote there, up to 8 KiB
}

// Error says all that is known on one line, but for the most of Stderr.
func (e *ConnError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "lspconn: %s", e.Name)
	if e.Method != "" {
		fmt.Fprintf(&b, ": %s", e.Method)
	}
	if e.Cause == nil {
		fmt.Fprintf(&b, ": %v", ErrClosing)
	} else {
		fmt.Fprintf(&b, ": the connection has failed: %v", e.Cause)
	}
	if e.Exit != nil {
		fmt.Fprintf(&b, "; the process: %v", e.Exit)
	}
	if last := lastLine(e.Stderr); last != "" {
		fmt.Fprintf(&b, "; it said: %q", last)
	}
	return b.String()
}

// Unwrap returns ErrClosing, and the Cause if there is one.
func (e *ConnError) Unwrap() []error {
	if e.Cause == nil {
		return []error{ErrClosing}
	}
	return []error{ErrClosing, e.Cause}
}

func lastLine(s string) string {
	s = strings.TrimRight(s, " \t\r\n")
	s = s[strings.LastIndexByte(s, '\n')+1:]
	return s[:min(len(s), 500)]
}

// A ProtocolError says what a server sent that is no LSP. The stream cannot be trusted after it: the connection fails.
type ProtocolError struct {
	What string
	Err  error // nil where What says it all
}

func (e *ProtocolError) Error() string {
	if e.Err == nil {
		return "the server broke the protocol: " + e.What
	}
	return "the server broke the protocol: " + e.What + ": " + e.Err.Error()
}

// Unwrap returns Err.
func (e *ProtocolError) Unwrap() error { return e.Err }

// An ExitError is the cause where a server has ended although nobody had told it to.
type ExitError struct{ Exit Exit }

func (e *ExitError) Error() string { return "the server has ended by itself: " + e.Exit.String() }
