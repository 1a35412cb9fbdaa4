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

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var errFault = errors.New("injected")

// faults are the ways in which a callback can fail to return. The field says is a text that the
// message of the launcher must then contain.
var faults = map[string]struct {
	do   func()
	says string
}{
	"panic":  {func() { panic(errFault) }, "injected"},
	"Goexit": {runtime.Goexit, "runtime.Goexit"},
}

// blames reads events up to one of the given kind whose texts contain parts: the name of a
// callback, its panic, and the place of the panic.
func (h *harness) blames(kind launcher.Kind, parts ...string) {
	h.t.Helper()
	e := h.readUntil(strings.Join(parts, " … "), func(e launcher.Event) bool { return e.Kind == kind && e.Stack != "" })
	for _, part := range parts {
		if !strings.Contains(e.Message, part) {
			h.t.Errorf("event message is %q, want %q", e.Message, part)
		}
	}
	if !strings.Contains(e.Stack, "faults_test.go") {
		h.t.Errorf("the stack does not show the place:\n%s", e.Stack)
	}
}

// faultyError is an error whose Error method panics.
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

// A router whose call panics has failed. Add is retried; Remove is not, and the process is stopped
// all the same.
func TestRouter_CallThatPanicsCountsAsFailed(t *testing.T) {
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
				testkit.Equal(t, "routed", h.running("web")[0].Routed, true)
				if err := h.StopProcess("web-1", launcher.Stop{NoReplacement: true}); err != nil {
					t.Fatal(err)
				}
				h.blames(launcher.RouterError, "remove: panic in Router.Remove: ", fault.says)
				testkit.Equal(t, "outcome", h.waitForEnd("web-1").Outcome, launcher.Clean)
			})
		}
	}
}

// A panic of the router after its timeout is reported, too.
func TestRouter_PanicAfterTimeoutIsReported(t *testing.T) {
	t.Parallel() // parallel, because the test takes as long as the timeout of the router
	release := make(chan struct{})
	h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{runners("web", 1)},
		Router: &faultyRouter{add: once(func() error { <-release; panic(errFault) }), remove: once(func() error { return nil })}})
	h.readUntil("the router times out", func(e launcher.Event) bool { return e.Kind == launcher.RouterError })
	close(release)
	h.blames(launcher.RouterError, "add, after its timeout: panic in Router.Add: injected")
	h.ready()
}

// Reread panics during a reload that an operator has requested. The operator gets an error, an
// alarm is raised, and the next reload works.
func TestReload_FailsWithAlarmIfRereadFunctionPanics(t *testing.T) {
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
				t.Errorf("error of the order is %v", err)
			}
			h.blames(launcher.Alarm, "panic in Reread: ", fault.says)
			reply, err := h.admin().Reload(soon(t), &pb.ReloadRequest{})
			if err != nil || reply.GetMessage() != "nothing has changed" {
				t.Errorf("second order: %v, %v", reply, err)
			}
		})
	}
	t.Run("by a program", func(t *testing.T) { // in this subtest the program itself calls Reread, and the panic reaches it
		again := once(func() error { panic(errFault) })
		h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{runners("web", 1)},
			Reread: func(context.Context, any) (launcher.Config, []string, error) { return launcher.Config{}, nil, again() }}).ready()
		func() {
			defer func() { testkit.Equal(t, "the caller recovers the panic", recover() == any(errFault), true) }()
			h.Reread(soon(t), false, "test")
		}()
		if _, err := h.Reread(soon(t), false, "test"); err != nil {
			t.Errorf("second call: %v", err)
		}
	})
}

// A handler is a log handler that calls the function fault for each record, and then records the
// message.
type handler struct {
	fault func(r slog.Record)

	mu       sync.Mutex
	messages []string
}

func (h *handler) Enabled(context.Context, slog.Level) bool { return true }
func (h *handler) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *handler) WithGroup(string) slog.Handler            { return h }
func (h *handler) Handle(_ context.Context, r slog.Record) error {
	h.fault(r)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.messages = append(h.messages, r.Message)
	return nil
}

// If the log handler panics, its message is lost. Only the first panic raises an alarm, and the
// handler may panic at the message of that alarm, too.
func TestLogger_RepeatedPanicRaisesOnlyOneAlarm(t *testing.T) {
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
			testkit.Equal(t, "outcome", h.stopAndWait("web-1").Outcome, launcher.Clean)
			h.close()
			testkit.Equal(t, "further alarms", h.count(launcher.Alarm), 1)
			log.mu.Lock()
			defer log.mu.Unlock()
			var rest []string
			for _, e := range h.events {
				if e.Kind == launcher.GroupHealthy || e.Kind == launcher.GroupUnhealthy {
					rest = append(rest, string(e.Kind))
				}
			}
			testkit.Equal(t, "messages of the handler", log.messages, rest)
			testkit.Equal(t, "first message", rest[:min(1, len(rest))], []string{string(launcher.GroupHealthy)})
		})
	}
}

// A faultyWriter calls its function fault at lines that contain a marker.
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

// If Output panics, the line counts as dropped, and the next lines are written.
func TestOutput_PanicOfWriterDropsOneLine(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			out := &faultyWriter{fault: fault.do}
			h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{script("web", 1, "echo one; echo break; echo two")}, Output: out})
			h.blames(launcher.Alarm, "some output of processes is lost", "panic in Output.Write: ", fault.says)
			h.ready()
			testkit.Equal(t, "outcome", h.stopAndWait("web-1").Outcome, launcher.Clean)
			h.close()
			log := h.Stats().Groups["web"].Log
			testkit.Equal(t, "dropped lines", log.DroppedLines, uint64(1))
			for _, want := range []string{"| one\n", "| two\n", "1 line dropped: "} {
				if !strings.Contains(out.out.String(), want) {
					t.Errorf("output does not contain %q:\n%s", want, &out.out)
				}
			}
		})
	}
}
