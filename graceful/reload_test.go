package graceful_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/internal/ctxkey"
	"github.com/swansong-go/swansong/internal/testkit"
)

// This program prints a line for each reload. The second reload fails.
func init() {
	roles["reloads"] = func() error {
		calls := 0
		return main1(func(s *ctxshutdown.Swansong) error {
			graceful.Ready(s)
			return untilStopped(s)
		}, long(graceful.WithSignals(syscall.SIGTERM), graceful.WithReload(func(context.Context) error {
			calls++
			fmt.Println("reload", calls)
			if calls == 2 {
				return errors.New("line 7: no such option")
			}
			return nil
		}))...)
	}
}

// SIGHUP calls the function of WithReload, even if SIGHUP is not in WithSignals. Run notifies
// systemd when a call begins and when the call has ended, even if it has failed. SIGTERM still
// stops the process.
func TestWithReload_NotifiesSystemd(t *testing.T) {
	name := filepath.Join(t.TempDir(), "notify")
	s := listen(t, name)
	p := start(t, "reloads", "NOTIFY_SOCKET="+name)
	testkit.Equal(t, "first message", s.next(), "READY=1")
	last := int64(0)
	for range 2 {
		p.signal(syscall.SIGHUP)
		begin := s.next()
		var usec int64
		if runtime.GOOS == "linux" {
			if n, err := fmt.Sscanf(begin, "RELOADING=1\nMONOTONIC_USEC=%d", &usec); n != 1 || err != nil || usec <= last {
				t.Errorf("the message at the beginning of a reload is %q; the time of the previous one is %d", begin, last)
			}
		}
		last = usec
		testkit.Equal(t, "at the end of a reload", s.next(), "READY=1")
	}
	p.signal(syscall.SIGTERM)
	testkit.Equal(t, "last message", s.next(), "STOPPING=1")
	testkit.Equal(t, "exit code", p.awaitExit(), 0)
	testkit.Equal(t, "standard error", p.stderr.String(), "graceful: reload failed: line 7: no such option\n")
	testkit.Equal(t, "calls", strings.Count(p.output(), "reload "), 2)
}

// signalled calls Run in a bubble, with a channel in place of the signals of the process.
func signalled(b *testRun, signals chan os.Signal, f func(s *ctxshutdown.Swansong) error, opts ...graceful.Option) error {
	ctx := context.WithValue(b.Context(), ctxkey.Signals{}, signals)
	return graceful.Run(ctx, f, append([]graceful.Option{graceful.WithOutput(&b.out)}, opts...)...)
}

// Several signals during a call lead to one more call. During a drain, SIGHUP neither reloads nor
// cuts the drain short. The drain ends the context of a call that is running, and waits for the
// call.
func TestWithReload_ReloadFunctionIsNeverCalledConcurrently(t *testing.T) {
	bubble(t, func(b *testRun) {
		signals := make(chan os.Signal)
		var calls []time.Duration
		began := time.Now()
		var log output
		err := signalled(b, signals, func(s *ctxshutdown.Swansong) error {
			for range 3 {
				signals <- syscall.SIGHUP
			}
			time.Sleep(25 * time.Second)
			signals <- syscall.SIGHUP
			signals <- syscall.SIGTERM
			time.Sleep(2 * time.Second)
			signals <- syscall.SIGHUP
			return nil
		}, graceful.WithReload(func(ctx context.Context) error {
			calls = append(calls, time.Since(began))
			ctxshutdown.Sleep(ctx, 10*time.Second)
			return ctx.Err()
		}), graceful.WithLogger(slog.New(recorder(func(r slog.Record) {
			if strings.Contains(r.Message, "reload") {
				fmt.Fprintln(&log, r.Message)
			}
		}))))
		testkit.Equal(t, "error", err, nil)
		testkit.Equal(t, "took", time.Since(began), 27*time.Second)
		testkit.Equal(t, "calls", calls, []time.Duration{0, 10 * time.Second, 25 * time.Second})
		testkit.Equal(t, "log", log.String(), "reloaded\nreloaded\nreload failed\n")
	})
}

// In the lame duck phase, in which the scope has not been stopped yet, SIGHUP has no effect either.
func TestWithReload_IgnoresSignalInLameDuck(t *testing.T) {
	bubble(t, func(b *testRun) {
		signals := make(chan os.Signal)
		calls := 0
		signalled(b, signals, func(s *ctxshutdown.Swansong) error {
			signals <- syscall.SIGTERM
			time.Sleep(2 * time.Second)
			signals <- syscall.SIGHUP
			time.Sleep(2 * time.Second)
			return nil
		}, graceful.WithReload(func(context.Context) error { calls++; return nil }), graceful.WithLameDuck(time.Minute))
		testkit.Equal(t, "calls", calls, 0)
	})
}

// A panic of the function stops the process. Run raises the panic after the drain.
func TestWithReload_PanicStopsProcess(t *testing.T) {
	bubble(t, func(b *testRun) {
		defer func() {
			if p, ok := recover().(*graceful.PanicError); !ok || p.Value != "oops" {
				t.Errorf("Run has panicked with %v", p)
			}
			if want := "graceful: panic in the function given to WithReload: oops\n\ngoroutine "; !strings.HasPrefix(b.out.String(), want) {
				t.Errorf("output:\n%s", b.out.String())
			}
		}()
		signals := make(chan os.Signal)
		signalled(b, signals, func(s *ctxshutdown.Swansong) error {
			signals <- syscall.SIGHUP
			return untilStopped(s)
		}, graceful.WithReload(func(context.Context) error { panic("oops") }))
	})
}

func TestWithReload_RejectsNil(t *testing.T) {
	err := graceful.Run(t.Context(), untilStopped, graceful.WithReload(nil))
	testkit.Equal(t, "error", testkit.ErrorText(err), "graceful: WithReload(nil): the function must not be nil")
}
