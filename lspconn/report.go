package lspconn

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
)

// Outcome is how a server came to its end: the most that had to be done.
type Outcome int

const (
	Clean            Outcome = iota // it answered shutdown, was told exit, and left; with whatever exit code
	ExitedEarly                     // it ended before it was told to
	HandshakeTimeout                // it did not answer shutdown, or not in time, but left when it was told exit or its stdin closed
	Terminated                      // SIGTERM ended it, or it left when it had been sent one
	Killed                          // SIGKILL ended it
	Unconfirmed                     // at the deadline it was not known to have ended
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

// MarshalText returns the name, for JSON.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// An Exit is how a process ended.
type Exit struct {
	Code   int    // -1 where a signal ended it
	Signal string // empty where none did
}

func (e Exit) String() string {
	if e.Signal != "" {
		return "ended by signal: " + e.Signal
	}
	return fmt.Sprintf("exit code %d", e.Code)
}

// A Report says how a connection ended.
type Report struct {
	Name    string
	Outcome Outcome
	Exit    *Exit // nil where the process is not known to have ended

	Failure   error    // what made the connection fail before it was closed, or the server be terminated; nil if nothing
	Survivors []string // who of all that the server started could not be ended, as in "node[4711]"
	Left      []string // who was still there when the server itself had ended
	Stderr    string   // the last lines, up to 8 KiB
	Stray     int      // responses to calls that had been answered or given up: ignored

	Drain     time.Duration // until the queue was written, or given up
	Handshake time.Duration // from there until shutdown was answered, or given up
	Leave     time.Duration // from there until the process was reaped, or given up
	Total     time.Duration // of the closing
}

// String is one line for logs.
func (r Report) String() string {
	exit := "not known to have ended"
	if r.Exit != nil {
		exit = r.Exit.String()
	}
	s := fmt.Sprintf("%s: %v, %s, in %v", r.Name, r.Outcome, exit, r.Total.Round(time.Millisecond))
	if len(r.Survivors) > 0 {
		s += fmt.Sprintf(", survivors: %v", r.Survivors)
	}
	if r.Failure != nil {
		s += fmt.Sprintf(" (%v)", r.Failure)
	}
	return s
}

// LogValue returns the parts of the report that tell of trouble, and the durations.
func (r Report) LogValue() slog.Value {
	attrs := []slog.Attr{
		slog.String("outcome", r.Outcome.String()),
		slog.Duration("drain", r.Drain), slog.Duration("handshake", r.Handshake), slog.Duration("leave", r.Leave),
	}
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

func names(members []proc.Member) (names []string) {
	for _, m := range members {
		names = append(names, m.String())
	}
	return names
}
