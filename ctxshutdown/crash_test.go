package ctxshutdown_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// boom is the value with which the programs in the map crashes panic. The runtime calls the method
// Error of the value after all deferred calls have run and before it prints the panic. If a wait
// has returned too early, Error blocks until main ends the program, so the panic is never printed.
// So the result of the test does not depend on whether main or the runtime is faster.
type boom struct{ released func() bool }

func (b boom) Error() string {
	if b.released() {
		select {}
	}
	return "boom"
}

// crashes are programs that wait for a function that panics. If the wait returns, the program ends
// with exit code 0.
var crashes = map[string]func(s *ctxshutdown.Swansong){
	"Swansong.Go": func(s *ctxshutdown.Swansong) {
		s.Go(func(context.Context) { panic(boom{func() bool { return s.GuardCount() == 0 }}) })
		<-s.Shutdown().Done()
	},
	"Go": func(s *ctxshutdown.Swansong) {
		c := child(s)
		ctxshutdown.Go(c, func(context.Context) { panic(boom{func() bool { return s.GuardCount() == 0 }}) })
		<-c.Shutdown().Done()
	},
	"Group.Go, and the drain": func(s *ctxshutdown.Swansong) {
		g := ctxshutdown.NewGroup(s)
		g.Go(func(context.Context) error { panic(boom{func() bool { return s.GuardCount() == 0 }}) })
		<-s.Shutdown().Done()
	},
	"Group.Go, and Wait": func(s *ctxshutdown.Swansong) {
		g := ctxshutdown.NewGroup(s)
		running := func() bool { return panicOf(func() { g.SetLimit(1) }) != noPanic }
		g.Go(func(context.Context) error { panic(boom{func() bool { return !running() }}) })
		g.Wait()
	},
	"Group.Go with a limit, and Wait": func(s *ctxshutdown.Swansong) {
		g := ctxshutdown.NewGroup(s)
		g.SetLimit(1)
		running := func() bool { return panicOf(func() { g.SetLimit(2) }) != noPanic }
		g.Go(func(context.Context) error { panic(boom{func() bool { return !running() }}) })
		g.Wait()
	},
	"Group.TryGo, and the next one": func(s *ctxshutdown.Swansong) {
		g := ctxshutdown.NewGroup(s)
		g.SetLimit(1)
		nothing := func(context.Context) error { return nil }
		g.TryGo(func(context.Context) error { panic(boom{func() bool { return g.TryGo(nothing) }}) })
		g.Go(nothing)
	},
	"Call": func(s *ctxshutdown.Swansong) {
		returned := make(chan struct{})
		ctxshutdown.Call(s, func(context.Context) (string, error) {
			panic(boom{func() bool {
				select {
				case <-returned:
					return true
				case <-time.After(100 * time.Millisecond): // if Call is broken, it has returned by now
					return false
				}
			}})
		})
		close(returned)
	},
	"Call, given up": func(s *ctxshutdown.Swansong) {
		running := make(chan struct{})
		go ctxshutdown.Call(s, func(context.Context) (string, error) {
			close(running)
			<-s.Done()
			panic(boom{func() bool { return s.GuardCount() == 0 }})
		})
		<-running
		<-s.Shutdown().Done()
	},
}

const crashCase = "CTXSHUTDOWN_TEST_CRASH"

// TestHelperProcess_PanicsInFunctionOfGo is not a test. TestGo_PanicEndsProgram runs it in another
// process, which must crash.
func TestHelperProcess_PanicsInFunctionOfGo(t *testing.T) {
	if run := crashes[os.Getenv(crashCase)]; run != nil {
		run(ctxshutdown.New(context.Background()))
		os.Exit(0)
	}
}

// If a function that this package runs panics, the panic is printed and ends the program with exit
// code 2, as in any goroutine. Before that, no call that waits for the function may return: see
// docs/internals/core.md#semantic-11.
func TestGo_PanicEndsProgram(t *testing.T) {
	for name := range crashes {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelperProcess_PanicsInFunctionOfGo$", "-test.timeout=10s")
			cmd.Env = append(os.Environ(), crashCase+"="+name, "GORACE=atexit_sleep_ms=0")
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), "panic: boom") ||
				!strings.Contains(string(out), "crash_test.go") {
				t.Errorf("%v, want exit status 2, the panic and its stack:\n%s", err, out)
			}
		})
	}
}
