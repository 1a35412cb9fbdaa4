package lspconn

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

// A Server describes how to start a language server and how the connection to it behaves. Only
// Command is required.
type Server struct {
	Name    string   // used in reports and errors; empty means the base name of Command[0]
	Command []string // Command[0] is looked up in PATH as os/exec does
	Dir     string   // the working directory; empty means that of this process
	Env     []string // the environment; nil means that of this process

	// Dial opens the stream over which the messages are exchanged, for a server that uses a socket:
	// it connects to the server, which may not listen yet, or accepts the server's connection. It
	// is called once the process runs, on a goroutine of its own. ctx ends when the connection
	// closes or the server has exited; Dial must return then. An error or a panic fails the
	// connection. The server's stdin is kept open until the connection closes the stream, and its
	// stdout is discarded. A stream that another process may keep open, such as a proxy, should
	// have SetReadDeadline, as a [net.Conn] has, so that reading ends when the server has ended. A
	// server that waits for further clients after exit runs until SIGTERM is sent: start gopls with
	// -listen.timeout=100ms, so that it exits by itself. Nil means stdin and stdout.
	Dial func(ctx context.Context) (io.ReadWriteCloser, error)

	// Initialize is the params of the initialize request. It is not copied. Nil means a null
	// rootUri and no capabilities. If the member processId is missing, it is added with the pid of
	// this program, because many servers exit when the program with this pid has ended. Set it to
	// null for a server that runs on another machine or in a container.
	Initialize json.RawMessage

	// InitializeTimeout is how long the server may take to answer initialize before the connection
	// fails. It includes the time of Dial. Zero means one minute.
	InitializeTimeout time.Duration

	// IdleTimeout is the longest silence of the server, while a call waits for its response, before
	// the connection fails. Every message ends the silence, also one about progress. While no call
	// waits, or a handler has not returned, the server need not send anything, and the time does
	// not run. The end of such a pause is noticed up to IdleTimeout later, so the connection may
	// fail as late as after twice IdleTimeout. While the connection closes, only the deadline of
	// closing counts. Zero means that there is no limit. The type Process ignores this field.
	IdleTimeout time.Duration

	// OnRequest answers a request of the server. The messages of the server are handled one at a
	// time, in the order in which they were received: until OnRequest has returned, or has called
	// [Async] with its context, no later response completes its call, and neither OnRequest nor
	// OnNotify is called again. While 1024 messages wait, the connection reads nothing from the
	// server.
	//
	// A handler may use the connection. [Conn.Call], [Conn.Ready] and [Conn.Close] with its context
	// call Async, because they could wait for ever otherwise; with a context that is not derived
	// from that of the handler, they do not. Messages that the handler has queued are written
	// before the response.
	//
	// ctx ends when the connection closes or fails, when the server cancels the request with
	// $/cancelRequest, and when OnRequest has returned. To close the connection, pass
	// context.WithoutCancel(ctx) to Close. When a fifth of the time for closing has passed, every
	// request without a response is answered with an error, and no handler is called any more.
	//
	// Up to 256 requests may be handled after a call of Async; further ones are rejected. The
	// connection fails if the responses to 8192 requests have not been written, because the server
	// does not read.
	//
	// An error that is a *ResponseError is sent as it is. Any other error is sent as an internal
	// error with its text; in the place of the error of ctx, the server gets the reason why ctx has
	// ended. A nil OnRequest answers every request with "method not found". [PanicError] documents
	// a panic in OnRequest or in the encoding of its result.
	OnRequest func(ctx context.Context, method string, params json.RawMessage) (result any, err error)

	// OnNotify is called for the notifications of the server, except $/cancelRequest, which the
	// connection handles. OnRequest documents the order, and what the handler may do. ctx ends when
	// the connection closes or fails. Nil ignores notifications. After a panic in OnRequest or
	// OnNotify, neither is called again; see [PanicError].
	OnNotify func(ctx context.Context, method string, params json.RawMessage)

	// CloseTimeout is the deadline of Close: 1 s to 15 s. Zero means 10 s. When a Manager closes or
	// is stopped, the Manager's timeout applies instead. With 5 s or less, SIGTERM is sent after 70
	// % of it. So with 1 s, a server that needs more than 0.7 s to answer shutdown and exit is
	// ended by a signal. gopls may need longer than that.
	CloseTimeout time.Duration

	// Discard makes Close fail queued messages instead of writing them. A message that is being
	// written is still completed.
	Discard bool

	// QueueLimit is how many messages may be queued before Call and Notify block. Zero means 1024.
	QueueLimit int

	// Trace receives every message that is sent or received, in the text format that VS Code writes
	// with the setting trace.server, and that the LSP Inspector reads. The connection makes one
	// call of Write for each message, never two at the same time, and waits for it. Connections
	// that share a writer may call Write at the same time. The connection ignores errors of Write.
	// Write must not wait for the connection. Nil traces nothing.
	Trace io.Writer

	// Logger receives state changes, ignored responses, panics and reports. The connection waits
	// for each call of its handler. The handler may call State, but must not wait for the
	// connection. [PanicError] documents a panic in it. Nil logs nothing.
	Logger *slog.Logger

	key string // the key of the connection in its Manager
}

// label returns how errors and reports name the connection: by its key, too, if it has one.
func label(key, name string) string {
	switch {
	case key == "" || key == name:
		return name
	case name == "": // the manager has started no server for the key
		return key
	}
	return key + ": " + name
}

// keyPrefix returns the key of the connection and a colon for an error that does not contain the
// name of the server, or nothing without a key.
func (s Server) keyPrefix() string {
	if s.key == "" {
		return ""
	}
	return s.key + ": "
}

const (
	minClose          = time.Second
	maxClose          = 15 * time.Second
	defaultClose      = 10 * time.Second
	defaultInitialize = time.Minute
	defaultQueue      = 1024
)

const defaultParams = `{"rootUri":null,"capabilities":{}}`

// withProcessID adds the member processId to the params of initialize, unless they have it or are
// no object.
func withProcessID(params json.RawMessage) json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(params, &members) != nil || members == nil || members["processId"] != nil {
		return params
	}
	comma := ","
	if len(members) == 0 {
		comma = ""
	}
	rest := bytes.TrimLeft(params, " \t\r\n")[1:]
	return fmt.Appendf(nil, `{"processId":%d%s%s`, os.Getpid(), comma, rest)
}

// withDefaults returns a copy of s with its defaults filled in, or an error for an invalid field.
func (s Server) withDefaults() (Server, error) {
	if len(s.Command) == 0 || s.Command[0] == "" {
		return s, fmt.Errorf("lspconn: %sServer.Command is empty; set it to the program and its arguments", s.keyPrefix())
	}
	s.Name = cmp.Or(s.Name, filepath.Base(s.Command[0]))
	name := label(s.key, s.Name)
	if s.Initialize == nil {
		s.Initialize = json.RawMessage(defaultParams)
	} else if !json.Valid(s.Initialize) {
		return s, fmt.Errorf("lspconn: %s: Server.Initialize is not valid JSON: %s", name, quoted(s.Initialize))
	}
	s.Initialize = withProcessID(s.Initialize)
	if s.InitializeTimeout < 0 || s.IdleTimeout < 0 || s.QueueLimit < 0 {
		return s, fmt.Errorf("lspconn: %s: Server.InitializeTimeout (%v), IdleTimeout (%v) and QueueLimit (%d) must not be negative; zero means the default",
			name, s.InitializeTimeout, s.IdleTimeout, s.QueueLimit)
	}
	var err error
	if s.CloseTimeout, err = checkCloseTimeout(s.CloseTimeout); err != nil {
		return s, fmt.Errorf("lspconn: %s: Server.%w", name, err)
	}
	s.InitializeTimeout = cmp.Or(s.InitializeTimeout, defaultInitialize)
	s.QueueLimit = cmp.Or(s.QueueLimit, defaultQueue)
	return s, nil
}

// checkCloseTimeout returns d, or 10 s if d is zero, or an error if d is out of range.
func checkCloseTimeout(d time.Duration) (time.Duration, error) {
	if d = cmp.Or(d, defaultClose); d < minClose || d > maxClose {
		return 0, fmt.Errorf("CloseTimeout is %v; it must be between %v and %v, or zero for the default of %v", d, minClose, maxClose, defaultClose)
	}
	return d, nil
}
