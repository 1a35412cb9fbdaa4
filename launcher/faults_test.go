//go:build unix

package launcher_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swansong-go/swansong/launcher"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var errFault = errors.New("injected")

// faults are the ways in which a callback does not return, and what is then said of it.
var faults = map[string]struct {
	do   func()
	says string
}{
	"panic":  {func() { panic(errFault) }, "injected"},
	"Goexit": {runtime.Goexit, "runtime.Goexit"},
}

// blames reads events up to one of a kind that names a callback, with what it has panicked with and where.
func (h *harness) blames(kind launcher.Kind, parts ...string) {
	h.t.Helper()
	e := h.until(strings.Join(parts, " … "), func(e launcher.Event) bool { return e.Kind == kind && e.Stack != "" })
	for _, part := range parts {
		if !strings.Contains(e.Message, part) {
			h.t.Errorf("the event says %q, not %q", e.Message, part)
		}
	}
	if !strings.Contains(e.Stack, "faults_test.go") {
		h.t.Errorf("the stack does not show the place:\n%s", e.Stack)
	}
}

// faultyError is an error that breaks when it is looked at.
type faultyError struct{ fault func() }

func (e faultyError) Error() string { e.fault(); return "" }

// A faultyRouter panics in the first call of each method.
type faultyRouter struct {
	table
	add, remove func() error
}

func once(fault func() error) func() error {
	first := true
	return func() error {
		if first {
			first = false
			return fault()
		}
		return nil
	}
}

func (r *faultyRouter) Add(ctx context.Context, i launcher.Instance) error {
	if err := r.add(); err != nil {
		return err
	}
	return r.table.Add(ctx, i)
}

func (r *faultyRouter) Remove(ctx context.Context, i launcher.Instance) error {
	if err := r.remove(); err != nil {
		return err
	}
	return r.table.Remove(ctx, i)
}

// A router that does not return has failed: it is asked again where that is so, and who is to be stopped is.
func TestFaults_Router(t *testing.T) {
	for name, fault := range faults {
		for where, f := range map[string]func() error{
			"the call":  func() error { fault.do(); return nil },
			"its error": func() error { return faultyError{fault.do} },
		} {
			t.Run(name+"/"+where, func(t *testing.T) {
				g := runners("web", 1)
				g.Shutdown.Poll = 50 * time.Millisecond
				h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{g}, Router: &faultyRouter{add: once(f), remove: once(f)}})
				h.blames(launcher.RouterError, "add: panic in Router.Add: ", fault.says)
				h.ready()
				equal(t, "routed", h.running("web")[0].Routed, true)
				if err := h.StopProcess("web-1", launcher.Stop{NoReplacement: true}); err != nil {
					t.Fatal(err)
				}
				h.blames(launcher.RouterError, "remove: panic in Router.Remove: ", fault.says)
				equal(t, "outcome", h.ends("web-1").Outcome, launcher.Clean)
			})
		}
	}
}

// One that panics when nobody waits for it any more is told of all the same.
func TestFaults_RouterTooLate(t *testing.T) {
	t.Parallel() // it takes as long as a router may
	release := make(chan struct{})
	h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{runners("web", 1)},
		Router: &faultyRouter{add: once(func() error { <-release; panic(errFault) }), remove: once(func() error { return nil })}})
	h.until("the router takes too long", func(e launcher.Event) bool { return e.Kind == launcher.RouterError })
	close(release)
	h.blames(launcher.RouterError, "add, too late: panic in Router.Add: injected")
	h.ready()
}

// What Redact panics at is not shown, and neither is the value, which may be the secret; and that is told once.
func TestFaults_Redact(t *testing.T) {
	var out bytes.Buffer
	h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{script("web", 1, "echo hunter2; echo hunter2 >&2; echo fine")}, Output: &out,
		Redact: func(s string) string {
			if strings.Contains(s, "hunter2") {
				panic("cannot redact " + s)
			}
			return s
		}}).ready()
	if err := h.StopProcess("web-1", launcher.Stop{Reason: "hunter2", NoReplacement: true}); err != nil {
		t.Fatal(err)
	}
	st := h.ends("web-1")
	equal(t, "outcome", st.Outcome, launcher.Clean)
	equal(t, "reason", st.Reason, "[not shown: Redact has panicked]")
	h.close()
	h.drainEvents()
	alarms := 0
	for _, e := range h.events {
		if e.Kind == launcher.Alarm {
			alarms++
			if !strings.HasPrefix(e.Message, "panic in Redact: ") || !strings.Contains(e.Stack, "faults_test.go") {
				t.Errorf("%q\n%s", e.Message, e.Stack)
			}
		}
		if strings.Contains(e.Message+e.Stack, "hunter2") {
			t.Errorf("the secret is out: %+v", e)
		}
	}
	equal(t, "alarms", alarms, 1)
	equal(t, "lines withheld", strings.Count(out.String(), "| [not shown: Redact has panicked]\n"), 2)
	equal(t, "lines shown", strings.Count(out.String(), "| fine\n"), 1)
	equal(t, "secrets", strings.Count(out.String(), "hunter2"), 0)
}

// An operator whose order to reload makes Reread panic is told so, and so is everybody; and another order works.
func TestFaults_Reread(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			again := once(func() error { fault.do(); return nil })
			cfg := launcher.Config{Dir: shortDir(t), Groups: []launcher.GroupConfig{runners("web", 1)}}
			cfg.Reread = func(context.Context, any) (launcher.Config, []string, error) {
				return launcher.Config{}, nil, again()
			}
			h := launchWith(t, cfg).ready()
			_, err := h.admin().Reload(soon(t), &pb.ReloadRequest{})
			if status.Code(err) != codes.FailedPrecondition || !strings.Contains(status.Convert(err).Message(), "panic in Reread: ") {
				t.Errorf("the operator is told %v", err)
			}
			h.blames(launcher.Alarm, "panic in Reread: ", fault.says)
			reply, err := h.admin().Reload(soon(t), &pb.ReloadRequest{})
			if err != nil || reply.GetMessage() != "nothing has changed" {
				t.Errorf("once more: %v, %v", reply, err)
			}
		})
	}
	t.Run("by a program", func(t *testing.T) { // whose goroutine it is
		again := once(func() error { panic(errFault) })
		h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{runners("web", 1)},
			Reread: func(context.Context, any) (launcher.Config, []string, error) { return launcher.Config{}, nil, again() }}).ready()
		func() {
			defer func() { equal(t, "the caller gets", recover() == any(errFault), true) }()
			h.Reread(soon(t), false, "test")
		}()
		if _, err := h.Reread(soon(t), false, "test"); err != nil {
			t.Errorf("once more: %v", err)
		}
	})
}

// A handler is a log handler that takes down what it is told, except where it is told to break.
type handler struct {
	fault func(r slog.Record)

	mu   sync.Mutex
	told []string
}

func (h *handler) Enabled(context.Context, slog.Level) bool { return true }
func (h *handler) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *handler) WithGroup(string) slog.Handler            { return h }
func (h *handler) Handle(_ context.Context, r slog.Record) error {
	h.fault(r)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = append(h.told, r.Message)
	return nil
}

// A log handler that does not return costs its message, however often; the first time is an alarm, which it may not be able
// to take either.
func TestFaults_Logger(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			log := &handler{fault: func(r slog.Record) {
				if r.Message != string(launcher.GroupHealthy) && r.Message != string(launcher.GroupUnhealthy) {
					fault.do()
				}
			}}
			h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{runners("web", 1)}, Logger: slog.New(log)})
			h.blames(launcher.Alarm, "panic in Logger: ", fault.says)
			h.ready()
			equal(t, "outcome", h.stops("web-1").Outcome, launcher.Clean)
			h.close()
			equal(t, "further alarms", h.count(launcher.Alarm), 1)
			log.mu.Lock()
			defer log.mu.Unlock()
			var rest []string
			for _, e := range h.events {
				if e.Kind == launcher.GroupHealthy || e.Kind == launcher.GroupUnhealthy {
					rest = append(rest, string(e.Kind))
				}
			}
			equal(t, "it is told the rest, to the end", log.told, rest)
			equal(t, "of which the first", rest[:min(1, len(rest))], []string{string(launcher.GroupHealthy)})
		})
	}
}

// A faultyWriter breaks at lines that say so.
type faultyWriter struct {
	fault func()
	out   bytes.Buffer
}

func (w *faultyWriter) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("| break")) {
		w.fault()
	}
	return w.out.Write(b)
}

// An Output that does not return has not taken the line, which is counted; the next ones it gets.
func TestFaults_Output(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			out := &faultyWriter{fault: fault.do}
			h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{script("web", 1, "echo one; echo break; echo two")}, Output: out})
			h.blames(launcher.Alarm, "some of what processes print is lost", "panic in Output.Write: ", fault.says)
			h.ready()
			equal(t, "outcome", h.stops("web-1").Outcome, launcher.Clean)
			h.close()
			log := h.Stats().Groups["web"].Log
			equal(t, "lines lost", log.DroppedLines, uint64(1))
			for _, want := range []string{"| one\n", "| two\n", "1 lines dropped: "} {
				if !strings.Contains(out.out.String(), want) {
					t.Errorf("the output does not have %q:\n%s", want, &out.out)
				}
			}
		})
	}
}
