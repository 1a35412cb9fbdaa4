package graceful_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/internal/testkit"
)

// A drain that takes longer than a second writes what it waits for, after one second and then every
// five seconds. The output names the line and the age of the oldest guard if the scope is traced.
func TestRun_WritesWhatLongDrainWaitsFor(t *testing.T) {
	bubble(t, func(b *testRun) {
		err := b.run(func(s *ctxshutdown.Swansong) error {
			for range 2 {
				hold(s, "export", s, 6500*time.Millisecond)
			}
			hold(s, "jobs", s, 500*time.Millisecond)
			hold(s, "mail", s, 10500*time.Millisecond)
			return untilStopped(s)
		})
		testkit.Equal(t, "exit code", graceful.ExitCode(err), 2)
		testkit.Equal(t, "output", b.out.String(), `
graceful: waiting for export ×2, mail ×1; cancelling them in 9 s
graceful: waiting for export ×2, mail ×1; cancelling them in 4 s
`[1:])
	})
	bubble(t, func(b *testRun) {
		b.run(func(s *ctxshutdown.Swansong) error { // the stop begins after one second
			hold(s, "mail", s, 1500*time.Millisecond)
			return untilStopped(s)
		}, graceful.WithScope(ctxshutdown.WithTrace()))
		if got := b.out.String(); !strings.HasPrefix(got, "graceful: waiting for mail ×1; the oldest for 2 s, from main_test.go:") {
			t.Errorf("output:\n%s", got)
		}
	})
}

// A drain that takes no longer than a second writes nothing.
func TestRun_WritesNothingInShortDrain(t *testing.T) {
	bubble(t, func(b *testRun) {
		testkit.Equal(t, "error", b.run(func(s *ctxshutdown.Swansong) error {
			hold(s, "jobs", s, 999*time.Millisecond)
			return untilStopped(s)
		}), nil)
		time.Sleep(time.Hour)
		testkit.Equal(t, "output", b.out.String(), "")
	})
}

// An output that blocks while it writes what the drain waits for delays the return of Run by one
// second. It does not delay the phases.
func TestRun_BlockedWaitReportDelaysRunOneSecond(t *testing.T) {
	bubble(t, func(b *testRun) {
		began := time.Now()
		release := make(chan struct{})
		defer close(release)
		err := b.run(func(s *ctxshutdown.Swansong) error {
			hold(s, "jobs", s, 3*time.Second)
			return untilStopped(s)
		}, graceful.WithOutput(panicking{func() { <-release }}))
		testkit.Equal(t, "error", err, nil)
		testkit.Equal(t, "took", time.Since(began), 5*time.Second)
	})
}

// A recorder is a slog.Handler that passes each record to a function.
type recorder func(r slog.Record)

func (f recorder) Enabled(context.Context, slog.Level) bool      { return true }
func (f recorder) WithAttrs([]slog.Attr) slog.Handler            { return f }
func (f recorder) WithGroup(string) slog.Handler                 { return f }
func (f recorder) Handle(_ context.Context, r slog.Record) error { f(r); return nil }

// When work is cancelled, the log lists the work that was running before, also if the logger is so
// slow that the work has ended in the meantime. It says why the drain was cut short.
func TestWithLogger_ListsBlockersBeforeForce(t *testing.T) {
	bubble(t, func(b *testRun) {
		released := make(chan struct{})
		var got []string
		err := b.run(func(s *ctxshutdown.Swansong) error {
			s.Go(func(work context.Context) { <-work.Done(); close(released) })
			return untilStopped(s)
		}, graceful.WithLogger(slog.New(recorder(func(r slog.Record) {
			switch r.Message {
			case "draining":
				<-released
				synctest.Wait() // until the guard has been released
			case "drain cut short":
				r.Attrs(func(a slog.Attr) bool {
					if a.Key == "guards" || a.Key == "why" {
						got = append(got, a.Value.String())
					}
					return true
				})
			}
		}))))
		var cut *graceful.ForcedError
		if !errors.As(err, &cut) {
			t.Fatalf("error: %v", err)
		}
		testkit.Equal(t, "guards and why", got, []string{"1 guard: (unnamed) ×1", "the drain took longer than 10s"})
	})
}
