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

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/client"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
)

var errFault = errors.New("injected")

// faults has the two ways in which a callback can end without returning, each with the text that
// reports it.
var faults = map[string]struct {
	do   func()
	says string
}{
	"panic":  {func() { panic(errFault) }, "injected"},
	"Goexit": {runtime.Goexit, "runtime.Goexit"},
}

// faultyError is an error whose Error method panics or calls runtime.Goexit.
type faultyError struct{ fault func() }

func (e faultyError) Error() string { e.fault(); return "" }

// faultyHandler is a log handler whose Handle method panics or calls runtime.Goexit.
type faultyHandler struct{ fault func() }

func (h faultyHandler) Enabled(context.Context, slog.Level) bool  { return true }
func (h faultyHandler) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h faultyHandler) WithGroup(string) slog.Handler             { return h }
func (h faultyHandler) Handle(context.Context, slog.Record) error { h.fault(); return nil }

// A check whose function panics or calls runtime.Goexit fails, and the readiness message says so.
func TestCheck_FailsWhenFunctionPanicsOrCallsGoexit(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			p := serve(t, client.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			var fixed atomic.Bool
			p.Readiness.Check(client.CheckConnected, func() bool {
				if !fixed.Load() {
					fault.do()
				}
				return true
			})
			p.Readiness.Set(client.Ready, "listening")
			r, err := p.child.GetReadinessStatus(p.ctx, &pb.ReadinessRequest{})
			if err != nil {
				t.Fatal(err)
			}
			testkit.Equal(t, "state", r.GetState(), pb.ReadinessResponse_WARMING)
			testkit.Equal(t, "connected", r.GetChecks().GetBackendConnected(), false)
			if m := r.GetMessage(); !strings.Contains(m, "backend connected (panic: ") || !strings.Contains(m, fault.says) {
				t.Errorf("message %q", m)
			}
			// Checks run every second, so a panic that repeats must not be logged again.
			testkit.Equal(t, "state, checked again", p.Readiness.State(), client.Warming)
			fixed.Store(true)
			testkit.Equal(t, "state when the check passes", p.Readiness.State(), client.Ready)
			p.Readiness.Check(client.CheckConnected, func() bool { fault.do(); return true })
			testkit.Equal(t, "state with a new faulty check", p.Readiness.State(), client.Unhealthy)
			p.Close() // after Close nothing is logged
			testkit.Equal(t, "panics logged", strings.Count(log.String(), "panic in a check"), 2)
			if !strings.Contains(log.String(), "faults_test.go") {
				t.Errorf("the log has no stack:\n%s", &log)
			}
		})
	}
}

// A drain function that panics or calls Goexit has failed. Its panic goes on to the caller of Run,
// but before that the launcher can see the failure in the status.
func TestDrain_FailsWhenFunctionPanicsOrCallsGoexit(t *testing.T) {
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
				testkit.Equal(t, "does the caller get the panic", <-value == any(errFault), name == "panic")
				st := p.status()
				testkit.Equal(t, "state", st.GetState(), pb.ShutdownStatus_SHUTDOWN_BLOCKED)
				testkit.Equal(t, "failure", st.GetDrainError(), "the drain did not return: it panicked, or called runtime.Goexit")
			})
		}
	}
}

// A log handler that panics or calls runtime.Goexit blocks neither calls nor the drain. The panic
// is printed on stderr.
func TestLogger_HandlerThatPanicsOrCallsGoexitBlocksNeitherCallsNorDrain(t *testing.T) {
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
			testkit.Equal(t, "readiness", p.readiness(), pb.ReadinessResponse_READY)
			p.shutdown(&pb.ShutdownRequest{ProcessId: "p-1", Reason: "test"})
			p.Shutdown.RequestMoreTime(1)
			testkit.Equal(t, "drain", p.Shutdown.Run(p.ctx, func(context.Context) error { return nil }), nil)
			testkit.Equal(t, "state", p.status().GetState(), pb.ShutdownStatus_SHUTDOWN_COMPLETE)
			p.Close()
			w.Close()
			text := <-said
			for _, part := range []string{`client: panic in the logger (Handle "asked to stop"): `, fault.says, "faults_test.go"} {
				if !strings.Contains(text, part) {
					t.Errorf("stderr does not say %q:\n%s", part, text)
				}
			}
		})
	}
}
