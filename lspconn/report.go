package lspconn

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
)

// An Outcome says how a server ended: by itself, or because of a step of closing. It names the last
// step that was needed.
type Outcome int

const (
	Clean            Outcome = iota // the server answered shutdown, and exited after the exit notification with any exit code
	ExitedEarly                     // the server exited before the exit notification was sent
	HandshakeTimeout                // the server did not answer shutdown in time or refused it, but exited after the exit notification or when stdin was closed
	Terminated                      // the server ended after SIGTERM
	Killed                          // the server was ended by SIGKILL
	Unconfirmed                     // at the deadline it was not known whether the server had ended
)

func (o Outcome) String() string {
	switch o {
	case Clean:
		return "Clean"
	case ExitedEarly:
		return "ExitedEarly"
	case HandshakeTimeout:
		return "HandshakeTimeout"
	case Terminated:
		return "Terminated"
	case Killed:
		return "Killed"
	case Unconfirmed:
		return "Unconfirmed"
	}
	return "Outcome(?)"
}

// MarshalText returns the name of the outcome, as String does.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// An Exit is the exit status of a process.
type Exit struct {
	Code   int    // the exit code, or -1 if a signal ended the process
	Signal string // the name of the signal that ended the process, or empty
}

func (e Exit) String() string {
	if e.Signal != "" {
		return "ended by signal: " + e.Signal
	}
	return fmt.Sprintf("exit code %d", e.Code)
}

// A Report describes how a connection ended.
type Report struct {
	Name    string
	Key     string // the key of the connection in its Manager; empty if it has no Manager
	Outcome Outcome
	Exit    *Exit // the exit status; nil if the process is not known to have ended

	Failure   error    // why the connection failed or the server had to be terminated, or nil
	Survivors []string // processes started by the server that could not be ended, such as "node[4711]"
	Left      []string // processes started by the server that were still running when the server exited
	Stderr    string   // the end of what the server wrote to stderr, up to 8 KiB; preceded by the line that names the error if the rest is a stack trace
	Stray     int      // the number of messages of the server that the connection ignored: responses that no call waited for, and JSON that is not a message of JSON-RPC

	Drain     time.Duration // how long Close waited for queued messages to be written
	Handshake time.Duration // after Drain, how long Close waited for the answer to shutdown
	Leave     time.Duration // after Handshake, how long Close waited for the process to end
	Total     time.Duration // how long closing took altogether
}

// String returns the report as one line. Unless the outcome is Clean, it contains the line of
// Stderr that most likely says what went wrong. A report without a Name is the empty report of
// [Manager.CloseKey] for a key without a connection, and String says so.
func (r Report) String() string {
	if r.Name == "" {
		return "no connection"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %v", label(r.Key, r.Name), r.Outcome)
	var exit *ExitError
	switch {
	case errors.As(r.Failure, &exit): // the text of the failure already contains the exit status
	case r.Exit != nil:
		fmt.Fprintf(&b, ", %v", r.Exit)
	case r.Outcome != Unconfirmed:
		b.WriteString(", not known to have ended")
	}
	fmt.Fprintf(&b, ", in %v", r.Total.Round(time.Millisecond))
	if len(r.Survivors) > 0 {
		fmt.Fprintf(&b, ", survivors: %v", r.Survivors)
	}
	if r.Failure != nil {
		fmt.Fprintf(&b, " (%v)", r.Failure)
	}
	if line := errorLine(r.Stderr); line != "" && r.Outcome != Clean {
		fmt.Fprintf(&b, "; stderr: %q", line)
	}
	return b.String()
}

// LogValue returns the outcome, the durations and all problems as attributes.
func (r Report) LogValue() slog.Value {
	var attrs []slog.Attr
	if r.Key != "" {
		attrs = append(attrs, slog.String("key", r.Key))
	}
	attrs = append(attrs,
		slog.String("outcome", r.Outcome.String()),
		slog.Duration("drain", r.Drain), slog.Duration("handshake", r.Handshake), slog.Duration("leave", r.Leave))
	if r.Exit != nil {
		attrs = append(attrs, slog.String("exit", r.Exit.String()))
	}
	if r.Failure != nil {
		attrs = append(attrs, slog.String("failure", r.Failure.Error()))
	}
	var p *PanicError
	if errors.As(r.Failure, &p) {
		attrs = append(attrs, slog.String("stack", string(p.Stack)))
	}
	if line := errorLine(r.Stderr); line != "" && r.Outcome != Clean {
		attrs = append(attrs, slog.String("stderr", line))
	}
	if len(r.Survivors) > 0 {
		attrs = append(attrs, slog.Any("survivors", r.Survivors))
	}
	return slog.GroupValue(attrs...)
}

func exitOf(e proc.Exit) *Exit {
	exit := &Exit{Code: e.Code}
	if e.Signal != 0 {
		exit.Signal = e.Signal.String()
	}
	return exit
}

func memberNames(members []proc.Member) (names []string) {
	for _, m := range members {
		names = append(names, m.String())
	}
	return names
}
