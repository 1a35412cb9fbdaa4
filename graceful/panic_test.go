package graceful_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/internal/ctxkey"
	"github.com/swansong-go/swansong/internal/testkit"
)

// panicked returns the function by which package eventloop reports that a panic has stopped a loop.
func panicked(t *testing.T, s *ctxshutdown.Swansong) func(who string, value any, stack []byte) {
	t.Helper()
	f, ok := s.Value(ctxkey.Panicked{}).(func(who string, value any, stack []byte))
	if !ok {
		t.Fatal("the scope of Run has no function for panics of event loops")
	}
	return f
}

// A panic that stops an event loop is logged while the process drains. It makes the process unready
// at once, without a lame duck, and becomes the error of Run.
func TestRun_PanicThatStopsLoopStartsDrainAndIsReturned(t *testing.T) {
	for _, test := range []struct {
		name string
		f    error // the error that the function given to Run returns
		hold time.Duration
		code int
	}{
		{"f returns nil", nil, 0, 1},
		{"f returns an error", errEnough, 0, 1},
		{"the drain is forced", nil, 15 * time.Millisecond, 2},
		{"the drain is abandoned", nil, 30 * time.Millisecond, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(b *testRun) {
				began := time.Now()
				var took time.Duration
				err := b.run(func(s *ctxshutdown.Swansong) error {
					hold(s, "work", s, test.hold)
					panicked(t, s)(`event loop "ledger"`, "oops", []byte("the stack"))
					<-process(t, s).LameDuck()
					took = time.Since(began)
					<-s.Done()
					// The clock of the bubble advances only when all goroutines are blocked. So
					// when Sleep returns, the panic has been written.
					time.Sleep(time.Nanosecond)
					testkit.Equal(t, "written during the drain", b.out.String(), "graceful: a panic has stopped the event loop \"ledger\": oops\n\nthe stack\n")
					testkit.Equal(t, "cause of the stop", testkit.ErrorText(context.Cause(s)), `graceful: a panic has stopped the event loop "ledger": oops`)
					if test.f != nil {
						return fmt.Errorf("%w: %w", test.f, context.Cause(s))
					}
					return context.Cause(s)
				}, graceful.WithLameDuck(time.Hour), graceful.WithSoft(10*time.Millisecond), graceful.WithHard(10*time.Millisecond))
				testkit.Equal(t, "time until the process was unready", took, time.Duration(0))
				time.Sleep(test.hold) // the work that Run has abandoned has ended after this time
				testkit.Equal(t, "exit code", graceful.ExitCode(err), test.code)
				var p *graceful.PanicError
				if !errors.As(err, &p) || p.Value != "oops" || string(p.Stack) != "the stack" {
					t.Errorf("the error of Run does not contain the panic: %v", err)
				}
				testkit.Equal(t, "it contains the error of f", errors.Is(err, errEnough), test.f != nil)
				if _, ok := err.(*graceful.PanicError); ok != (test.f == nil && test.code == 1) {
					t.Errorf("the error of Run is a %T", err)
				}
			})
		})
	}
}

// Every panic that has stopped a loop is in the error of Run and in the log. With a logger, nothing
// is written to the output.
func TestRun_LogAndErrorHaveEveryPanicThatStoppedLoop(t *testing.T) {
	bubble(t, func(b *testRun) {
		var log output
		err := b.run(func(s *ctxshutdown.Swansong) error {
			panicked(t, s)(`event loop "ledger"`, "first", []byte("stack 1"))
			panicked(t, s)(`pool "audits"`, errFault, []byte("stack 2"))
			return untilStopped(s)
		}, graceful.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		testkit.Equal(t, "error", testkit.ErrorText(err), "graceful: a panic has stopped the event loop \"ledger\": first\ngraceful: a panic has stopped the pool \"audits\": injected")
		testkit.Equal(t, "the value is wrapped", errors.Is(err, errFault), true)
		for _, want := range []string{
			`level=ERROR msg="a panic has stopped the event loop \"ledger\"" panic=first stack="stack 1"`,
			`level=ERROR msg="a panic has stopped the pool \"audits\"" panic=injected stack="stack 2"`,
		} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log does not contain %s:\n%s", want, log.String())
			}
		}
		testkit.Equal(t, "output", b.out.String(), "")
	})
}

// If the output panics while Run writes to it that a panic has stopped a loop, Run raises the panic
// of the output.
func TestRun_RaisesPanicOfOutputWriter(t *testing.T) {
	bubble(t, func(b *testRun) {
		defer func() {
			if p, ok := recover().(*graceful.PanicError); !ok || p.Value != errFault || !bytes.Contains(p.Stack, []byte("panic_test.go")) {
				t.Errorf("Run panicked with %v", p)
			}
		}()
		b.run(func(s *ctxshutdown.Swansong) error {
			panicked(t, s)(`event loop "ledger"`, "oops", nil)
			return untilStopped(s)
		}, graceful.WithOutput(panicking{func() { panic(errFault) }}))
	})
}

// A panic that stops a loop after Run has returned ends the program, because the result of Run
// cannot change any more.
func TestRun_PanicThatStopsLoopAfterRunReturnedCrashesProgram(t *testing.T) {
	p := start(t, "late panic of a loop")
	testkit.Equal(t, "exit code", p.awaitExit(), 2)
	if !strings.Contains(p.stderr.String(), `panic: graceful: a panic has stopped the pool "audits": oops`) {
		t.Errorf("standard error:\n%s", p.stderr.String())
	}
}

// A panic of f or of a hook is written while the process still drains, because the process may be
// killed before the drain has ended. The stack of the panic is written once.
func TestRun_WritesPanicBeforeDrainEnds(t *testing.T) {
	discardErrors := slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError + 1}))
	for _, test := range []struct {
		name string
		f    func(s *ctxshutdown.Swansong) error
		opts []graceful.Option
		want string // the beginning of what Run writes to the output; empty if the output is discarded
	}{
		{"f", func(*ctxshutdown.Swansong) error { panic("oops") }, nil, "graceful: panic in the function given to Run: oops\n\ngoroutine "},
		{"hook", untilStopped, []graceful.Option{graceful.WithPreStop("dereg", func(context.Context) error { panic("oops") })},
			"graceful: panic in the pre-stop hook \"dereg\": oops\n\ngoroutine "},
		{"f, and the logger drops errors", func(*ctxshutdown.Swansong) error { panic("oops") },
			[]graceful.Option{graceful.WithLogger(discardErrors)}, "graceful: panic in the function given to Run: oops\n\ngoroutine "},
		{"f, and the output is discarded", func(*ctxshutdown.Swansong) error { panic("oops") }, []graceful.Option{graceful.WithOutput(io.Discard)}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(b *testRun) {
				defer func() {
					p, _ := recover().(*graceful.PanicError)
					if p == nil {
						t.Fatal("Run has not panicked with a PanicError")
					}
					stacks := strings.Count(b.out.String()+p.Error(), "\ngoroutine ")
					testkit.Equal(t, "stacks in the output and in the error", stacks, 1)
				}()
				b.run(func(s *ctxshutdown.Swansong) error {
					s.Go(func(context.Context) {
						<-s.Done()
						// The clock of the bubble advances only when all goroutines are blocked. So
						// when Sleep returns, the panic has been written.
						time.Sleep(time.Nanosecond)
						if got := b.out.String(); !strings.HasPrefix(got, test.want) {
							t.Errorf("written during the drain:\n%s", got)
						}
					})
					return test.f(s)
				}, test.opts...)
			})
		})
	}
}
