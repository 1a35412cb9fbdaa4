package eventloop_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/eventloop"
)

const asCrash = "EVENTLOOP_TEST_CRASH"

// A lateValue is the value with which main panics. The runtime calls its Error method after all
// deferred calls and before it prints anything. Error waits, so that a goroutine that is released
// too early has time to end the program, and the panic is not printed.
type lateValue struct{ released func() bool }

func (b lateValue) Error() string {
	if b.released() {
		select {}
	}
	return "lateValue"
}

// TestHelperProcess_PanicsInFunctionOfRun is the program that TestRun_PanicInMainEndsProgram
// starts. If it is run directly, it checks nothing.
func TestHelperProcess_PanicsInFunctionOfRun(t *testing.T) {
	if os.Getenv(asCrash) == "" {
		return
	}
	app := ctxshutdown.New(context.Background())
	l := eventloop.New(app)
	l.Run(context.Background(), func(context.Context) error {
		app.Shutdown()
		for app.GuardCount() > 1 { // wait until only the loop itself holds a guard
			runtime.Gosched()
		}
		panic(lateValue{func() bool { return app.GuardCount() == 0 }})
	})
	os.Exit(0)
}

// A panic in the parameter main of Run ends the program like a panic in any goroutine, even if
// another goroutine waits for the loop: the panic is printed, and the exit code is 2.
func TestRun_PanicInMainEndsProgram(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelperProcess_PanicsInFunctionOfRun$", "-test.timeout=10s")
	cmd.Env = append(os.Environ(), asCrash+"=1", "GORACE=atexit_sleep_ms=0")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), "panic: lateValue") {
		t.Errorf("%v, want exit status 2 and the panic:\n%s", err, out)
	}
}
