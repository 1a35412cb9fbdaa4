//go:build unix

package client_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/swansong-go/swansong/launcher/client"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
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

// faultyError is an error that breaks when it is looked at.
type faultyError struct{ fault func() }

func (e faultyError) Error() string { e.fault(); return "" }

// faultyHandler is a log handler that breaks.
type faultyHandler struct{ fault func() }

func (h faultyHandler) Enabled(context.Context, slog.Level) bool  { return true }
func (h faultyHandler) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h faultyHandler) WithGroup(string) slog.Handler             { return h }
func (h faultyHandler) Handle(context.Context, slog.Record) error { h.fault(); return nil }

// A check that does not return does not pass; who asks is answered, and told why.
func TestFaults_Check(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			p := serve(t, client.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			var mended atomic.Bool
			p.Readiness.Check(client.CheckConnected, func() bool {
				if !mended.Load() {
					fault.do()
				}
				return true
			})
			p.Readiness.Set(client.Ready, "listening")
			r, err := p.child.GetReadinessStatus(p.ctx, &pb.ReadinessRequest{})
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "state", r.GetState(), pb.ReadinessResponse_WARMING)
			equal(t, "connected", r.GetChecks().GetBackendConnected(), false)
			if m := r.GetMessage(); !strings.Contains(m, "backend connected (panic: ") || !strings.Contains(m, fault.says) {
				t.Errorf("message %q", m)
			}
			equal(t, "again", p.Readiness.State(), client.Warming) // of which nobody is told, since it is asked every second
			mended.Store(true)
			equal(t, "once more", p.Readiness.State(), client.Ready)
			p.Readiness.Check(client.CheckConnected, func() bool { fault.do(); return true })
			equal(t, "another check", p.Readiness.State(), client.Unhealthy)
			p.Close() // after which nobody logs
			equal(t, "panics logged", strings.Count(log.String(), "panic in a check"), 2)
			if !strings.Contains(log.String(), "faults_test.go") {
				t.Errorf("the log has no stack:\n%s", &log)
			}
		})
	}
}

// A drain that does not return has failed: the launcher sees that before whoever called Run does.
func TestFaults_Drain(t *testing.T) {
	for name, fault := range faults {
		for where, drain := range map[string]func(context.Context) error{
			"drain":     func(context.Context) error { fault.do(); return nil },
			"its error": func(context.Context) error { return faultyError{fault.do} },
		} {
			t.Run(name+"/"+where, func(t *testing.T) {
				p := serve(t)
				p.shutdown(&pb.ShutdownRequest{ProcessId: "p-1", Reason: "test"})
				value := make(chan any)
				go func() {
					defer func() { value <- recover() }()
					p.Shutdown.Run(p.ctx, drain)
					t.Error("Run has returned")
				}()
				equal(t, "the caller gets it", <-value == any(errFault), name == "panic")
				st := p.status()
				equal(t, "state", st.GetState(), pb.ShutdownStatus_SHUTDOWN_BLOCKED)
				equal(t, "failure", st.GetDrainError(), "panic in the drain, or a runtime.Goexit: it has not returned")
			})
		}
	}
}

// A log handler that does not return keeps nobody from being asked, nor from draining; stderr has it.
func TestFaults_Logger(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			stderr := os.Stderr
			os.Stderr = w
			defer func() { os.Stderr = stderr }()
			said := make(chan string)
			go func() {
				b, _ := io.ReadAll(r)
				r.Close()
				said <- string(b)
			}()

			p := serve(t, client.WithLogger(slog.New(faultyHandler{fault.do})))
			p.Readiness.Set(client.Ready, "listening")
			equal(t, "readiness", p.readiness(), pb.ReadinessResponse_READY)
			p.shutdown(&pb.ShutdownRequest{ProcessId: "p-1", Reason: "test"})
			p.Shutdown.RequestMoreTime(1)
			equal(t, "drain", p.Shutdown.Run(p.ctx, func(context.Context) error { return nil }), nil)
			equal(t, "state", p.status().GetState(), pb.ShutdownStatus_SHUTDOWN_COMPLETE)
			p.Close()
			w.Close()
			text := <-said
			for _, part := range []string{`client: panic in the logger (Handle, of "asked to stop"): `, fault.says, "faults_test.go"} {
				if !strings.Contains(text, part) {
					t.Errorf("stderr does not say %q:\n%s", part, text)
				}
			}
		})
	}
}
