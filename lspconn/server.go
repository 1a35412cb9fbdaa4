package lspconn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"
)

// A Server says how to start a language server and how to treat it. Only Command is needed.
type Server struct {
	Name    string   // in reports and errors; empty: the base of Command[0]
	Command []string // Command[0] is looked up in PATH as os/exec does
	Dir     string   // empty: that of this process
	Env     []string // nil: that of this process

	// Initialize is the params of the initialize request. Nil means a null processId, a null rootUri and no capabilities.
	// It is not copied.
	Initialize json.RawMessage

	// InitializeTimeout is how long the server may take to answer it; then the connection fails. Zero means one minute.
	InitializeTimeout time.Duration

	// OnRequest answers a request of the server. Each call has a goroutine of its own, up to 256 at once; beyond that the
	// server is refused, and where it leaves 8192 refusals unread, the connection fails. ctx ends when the connection has.
	// An error that is a *ResponseError goes to the server as it is, another one as an internal error with its text. Nil
	// answers every request with "method not found". For a panic, in it or in the encoding of its result, see [PanicError].
	OnRequest func(ctx context.Context, method string, params json.RawMessage) (result any, err error)

	// OnNotify is called for each notification of the server, one after the other in their order. When it has fallen 1024
	// behind, nothing is read from the server any more until it has caught up, responses included. Nil ignores them.
	// After a panic in it, see [PanicError], it is not called any more.
	OnNotify func(method string, params json.RawMessage)

	// CloseTimeout is the deadline of Close: 5 s to 15 s. Zero means 10 s. Where a Manager is closed or stopped, its counts.
	CloseTimeout time.Duration

	// Discard has Close fail the messages that are queued instead of writing them. The one under way is still completed.
	Discard bool

	// QueueLimit is how many messages may wait to be written before Call and Notify wait too. Zero means 1024.
	QueueLimit int

	// Logger is told of state changes, stray responses, panics and reports. Its handler may ask the connection for its state,
	// and must not wait for it: the connection goes on when it returns. For a panic in it see [PanicError]. Nil logs nothing.
	Logger *slog.Logger
}

const (
	minClose          = 5 * time.Second
	maxClose          = 15 * time.Second
	defaultClose      = 10 * time.Second
	defaultInitialize = time.Minute
	defaultQueue      = 1024
)

const defaultParams = `{"processId":null,"rootUri":null,"capabilities":{}}`

// complete returns the Server with its defaults, or what is wrong with it.
func (s Server) complete() (Server, error) {
	if len(s.Command) == 0 || s.Command[0] == "" {
		return s, errors.New("lspconn: Server.Command is empty: it needs the name of a program")
	}
	s.Name = cmp.Or(s.Name, filepath.Base(s.Command[0]))
	if s.Initialize == nil {
		s.Initialize = json.RawMessage(defaultParams)
	} else if !json.Valid(s.Initialize) {
		return s, fmt.Errorf("lspconn: %s: Server.Initialize is not JSON: %s", s.Name, quoted(s.Initialize))
	}
	if s.InitializeTimeout < 0 || s.QueueLimit < 0 {
		return s, fmt.Errorf("lspconn: %s: Server.InitializeTimeout and QueueLimit must not be negative; zero means the default", s.Name)
	}
	var err error
	if s.CloseTimeout, err = closeTimeout(s.CloseTimeout); err != nil {
		return s, fmt.Errorf("lspconn: %s: Server.%w", s.Name, err)
	}
	s.InitializeTimeout = cmp.Or(s.InitializeTimeout, defaultInitialize)
	s.QueueLimit = cmp.Or(s.QueueLimit, defaultQueue)
	return s, nil
}

func closeTimeout(d time.Duration) (time.Duration, error) {
	if d = cmp.Or(d, defaultClose); d < minClose || d > maxClose {
		return 0, fmt.Errorf("CloseTimeout is %v: it must be from %v to %v, or zero for %v", d, minClose, maxClose, defaultClose)
	}
	return d, nil
}
