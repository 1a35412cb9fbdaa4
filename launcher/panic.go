package launcher

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"

	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/protobuf/proto"
)

// A PanicError says that something that a program has put into a [Config] has panicked, or ended its goroutine by
// runtime.Goexit, where the launcher had called it on a goroutine of its own. The launcher goes on, since all processes
// depend on it; what becomes of the call is said with each field. It is told as an [Event], with the stack.
type PanicError struct {
	Callback string // as in "Router.Add"
	Value    any    // what it panicked with; an error that says so where it was runtime.Goexit
	Stack    []byte // where, as of runtime/debug.Stack
}

// Error has all but the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic in %s: %v", e.Callback, e.Value) }

// Unwrap returns the value, if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

var errGoexit = errors.New("it ended its goroutine by runtime.Goexit")

// protect calls f, and then, also where f has called Goexit, with what it has panicked with, nil if it has not.
func protect(callback string, f func(), then func(*PanicError)) {
	returned := false
	defer func() {
		var p *PanicError
		if !returned {
			value := recover()
			if value == nil {
				value = errGoexit
			}
			p = &PanicError{Callback: callback, Value: value, Stack: debug.Stack()}
		}
		then(p)
	}()
	f()
	returned = true
}

// stackOf is the stack of a panic, for an event.
func stackOf(err error) string {
	var p *PanicError
	if errors.As(err, &p) {
		return string(p.Stack)
	}
	return ""
}

// A redactor is a Config's Redact.
type redactor struct {
	f    func(string) string // nil: shows all
	told atomic.Bool         // that it panics
}

// withheld is shown instead of what could not be redacted. It is neither the text nor the value of the panic: both may be
// the secret.
const withheld = "[not shown: Redact has panicked]"

// redact returns what may be shown of s, and what Redact has panicked with.
func redact(f func(string) string, s string) (shown string, failed *PanicError) {
	if f == nil {
		return s, nil
	}
	defer func() {
		if value := recover(); value != nil {
			if _, safe := value.(runtime.Error); !safe {
				value = "its value is not shown, since it may have what was to be taken out"
			}
			shown, failed = withheld, &PanicError{Callback: "Redact", Value: value, Stack: debug.Stack()}
		}
	}()
	return f(s), nil
}

func (m *Manager) redact(s string) string {
	r := m.redactor.Load()
	if r == nil {
		return s
	}
	shown, failed := redact(r.f, s)
	if failed != nil && !r.told.Swap(true) {
		m.events.publish(Event{Kind: Alarm, Message: failed.Error() + "; what it was to be shown is left out, now and whenever that happens", Stack: string(failed.Stack)})
	}
	return shown
}

// redactMetrics returns what may be shown of what a process has said of itself. What this launcher does not know of, it cannot
// redact, and does not show.
func (m *Manager) redactMetrics(said *pb.ShutdownMetrics) *pb.ShutdownMetrics {
	if said == nil {
		return nil
	}
	shown := proto.Clone(said).(*pb.ShutdownMetrics) // the machine goes on with what was said
	shown.ProtoReflect().SetUnknown(nil)
	for i, operation := range shown.BlockingOperations {
		shown.BlockingOperations[i] = m.redact(operation)
	}
	return shown
}

// log hands events to a logger, to the last. One that panics costs one message each time, and the first is an alarm: to
// tell the logger of all would have no end.
func (h *eventHub) log(logger *slog.Logger, events <-chan Event) {
	for e := range events {
		protect("Logger", func() { logEvent(logger, e) }, func(p *PanicError) {
			if p == nil {
				return
			}
			if !h.deaf.Swap(true) {
				h.publish(Event{Kind: Alarm, Message: p.Error() + "; what it was told is lost, now and whenever that happens", Stack: string(p.Stack)})
			}
			if p.Value == errGoexit {
				go h.log(logger, events) // this goroutine ends
			}
		})
	}
	close(h.logged)
}

// guarded returns a writer whose panic is an error.
func guarded(w io.Writer) io.Writer {
	if _, ok := w.(*os.File); ok {
		return w
	}
	return &guardedWriter{w}
}

type guardedWriter struct{ w io.Writer }

func (g *guardedWriter) Write(b []byte) (n int, err error) {
	done := make(chan struct{})
	go protect("Output.Write", func() {
		if n, err = g.w.Write(b); err != nil {
			err = errors.New(err.Error())
		}
	}, func(p *PanicError) {
		if p != nil {
			n, err = 0, p
		}
		close(done)
	})
	<-done
	return n, err
}
