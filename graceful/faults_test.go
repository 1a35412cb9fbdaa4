package graceful_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/internal/testkit"
)

// A panicking value implements every callback of Run. Each of its methods panics or calls
// runtime.Goexit.
type panicking struct{ fault func() }

func (f panicking) Enabled(context.Context, slog.Level) bool { return true }
func (f panicking) WithAttrs([]slog.Attr) slog.Handler       { return f }
func (f panicking) WithGroup(string) slog.Handler            { return f }
func (f panicking) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "draining" {
		f.fault()
	}
	return nil
}
func (f panicking) Write([]byte) (int, error) { f.fault(); return 0, nil }

// A callback that panics stops the process like a panic of f. Run drains before it panics.
func TestRun_DrainsBeforePanicOfUsersCallbackEndsProcess(t *testing.T) {
	watch := func(phase graceful.Phase) func(t *testing.T, s *ctxshutdown.Swansong, fault func()) {
		return func(t *testing.T, s *ctxshutdown.Swansong, fault func()) {
			over := false
			process(t, s).Watch(func(st graceful.Status) {
				if over {
					t.Error("the callback was called again after its panic")
				}
				if over = st.Phase == phase; over {
					fault()
				}
			})
		}
	}
	for _, test := range []struct {
		name  string
		do    func(t *testing.T, s *ctxshutdown.Swansong, fault func())
		opts  func(f panicking) []graceful.Option
		cause string // the expected cause of the stop
		holds time.Duration
	}{
		{name: "Watch, while serving", do: watch(graceful.Serving)},
		{name: "Watch, in the drain", do: watch(graceful.Soft), cause: "enough"},
		{name: "Watch, at the end", do: watch(graceful.Exit), cause: "enough"},
		{name: "WithLogger", opts: func(f panicking) []graceful.Option { return []graceful.Option{graceful.WithLogger(slog.New(f))} }, cause: "enough"},
		{name: "WithOutput", opts: func(f panicking) []graceful.Option {
			return []graceful.Option{graceful.WithOutput(f), graceful.WithSoft(time.Second), graceful.WithHard(time.Second)}
		}, cause: "enough", holds: time.Minute},
	} {
		for name, fault := range map[string]struct {
			do   func()
			says string
		}{
			"panic":  {func() { panic(errFault) }, "injected"},
			"Goexit": {runtime.Goexit, "runtime.Goexit"},
		} {
			t.Run(test.name+"/"+name, func(t *testing.T) {
				bubble(t, func(b *testRun) {
					var drained atomic.Bool
					causes := make(chan string, 1)
					var opts []graceful.Option
					if test.opts != nil {
						opts = test.opts(panicking{fault.do})
					}
					func() {
						defer func() {
							p, ok := recover().(*graceful.PanicError)
							if !ok {
								t.Fatal("Run has not panicked with a PanicError")
							}
							if !strings.Contains(p.Error(), fault.says) || !bytes.Contains(p.Stack, []byte("faults_test.go")) {
								t.Errorf("the PanicError does not contain the value or the place of the panic:\n%v", p)
							}
						}()
						b.run(func(s *ctxshutdown.Swansong) error {
							s.Go(func(context.Context) {
								<-s.Done()
								causes <- testkit.ErrorText(context.Cause(s))
								time.Sleep(max(test.holds, 500*time.Millisecond))
								drained.Store(true)
							})
							if test.do != nil {
								test.do(b.T, s, fault.do)
							}
							<-s.Done()
							return nil
						}, opts...)
					}()
					testkit.Equal(t, "drained before", drained.Load(), test.holds == 0)
					if cause := <-causes; !strings.Contains(cause, test.cause) || test.cause == "" && !strings.Contains(cause, fault.says) {
						t.Errorf("the cause of the stop is %q", cause)
					}
					testkit.Equal(t, "phases", b.path.steps[len(b.path.steps)-1].Phase, graceful.Exit)
					time.Sleep(test.holds)
					testkit.Equal(t, "a Run after it", testkit.ErrorText(b.run(untilStopped)), "")
				})
			})
		}
	}
}

var errFault = errors.New("injected")
