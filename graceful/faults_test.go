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
)

// A faulty is all that Run tells something, and does not return from any of it.
type faulty struct{ fault func() }

func (f faulty) Enabled(context.Context, slog.Level) bool { return true }
func (f faulty) WithAttrs([]slog.Attr) slog.Handler       { return f }
func (f faulty) WithGroup(string) slog.Handler            { return f }
func (f faulty) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "draining" {
		f.fault()
	}
	return nil
}
func (f faulty) Write([]byte) (int, error) { f.fault(); return 0, nil }

// Who is told of the run and does not return makes the process stop, as f does, and Run drains before it raises that.
func TestFaults(t *testing.T) {
	watch := func(rung graceful.Rung) func(t *testing.T, s *ctxshutdown.Swansong, fault func()) {
		return func(t *testing.T, s *ctxshutdown.Swansong, fault func()) {
			over := false
			process(t, s).Watch(func(st graceful.Status) {
				if over {
					t.Error("it is told more")
				}
				if over = st.Rung == rung; over {
					fault()
				}
			})
		}
	}
	for _, test := range []struct {
		name  string
		do    func(t *testing.T, s *ctxshutdown.Swansong, fault func())
		opts  func(f faulty) []graceful.Option
		cause string // of the stop
		holds time.Duration
	}{
		{name: "Watch, while serving", do: watch(graceful.Serving)},
		{name: "Watch, in the drain", do: watch(graceful.Soft), cause: "enough"},
		{name: "Watch, at the end", do: watch(graceful.Exit), cause: "enough"},
		{name: "WithLogger", opts: func(f faulty) []graceful.Option { return []graceful.Option{graceful.WithLogger(slog.New(f))} }, cause: "enough"},
		{name: "WithOutput", opts: func(f faulty) []graceful.Option {
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
						opts = test.opts(faulty{fault.do})
					}
					func() {
						defer func() {
							p, ok := recover().(*graceful.PanicError)
							if !ok {
								t.Fatal("Run has not panicked with a PanicError")
							}
							if !strings.Contains(p.Error(), fault.says) || !bytes.Contains(p.Stack, []byte("faults_test.go")) {
								t.Errorf("it does not say what it was, and where:\n%v", p)
							}
						}()
						b.run(func(s *ctxshutdown.Swansong) error {
							s.Go(func(context.Context) {
								<-s.Done()
								causes <- text(context.Cause(s))
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
					equal(t, "drained before", drained.Load(), test.holds == 0)
					if cause := <-causes; !strings.Contains(cause, test.cause) || test.cause == "" && !strings.Contains(cause, fault.says) {
						t.Errorf("the cause of the stop is %q", cause)
					}
					equal(t, "rungs", b.path.steps[len(b.path.steps)-1].Rung, graceful.Exit)
					time.Sleep(test.holds)
					equal(t, "a Run after it", text(b.run(untilStopped)), "")
				})
			})
		}
	}
}

var errFault = errors.New("injected")
