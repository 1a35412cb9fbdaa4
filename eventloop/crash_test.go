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

// A boom is what main panics with. The runtime asks for its text when all deferred calls have run, and before it prints
// anything; whoever has been let go by then is given the time to end the program in peace.
type boom struct{ released func() bool }

func (b boom) Error() string {
	if b.released() {
		select {}
	}
	return "boom"
}

// TestMain_Crash is the process that crashes; by itself it checks nothing.
func TestMain_Crash(t *testing.T) {
	if os.Getenv(asCrash) == "" {
		return
	}
	app := ctxshutdown.New(context.Background())
	l := eventloop.New(app)
	l.Run(context.Background(), func(context.Context) error {
		app.Shutdown()
		for app.GuardCount() > 1 { // the loop's own
			runtime.Gosched()
		}
		panic(boom{func() bool { return app.GuardCount() == 0 }})
	})
	os.Exit(0)
}

// As in any goroutine: the panic is printed and the exit code is 2, whoever waits for the loop.
func TestAPanicInMainEndsTheProgram(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMain_Crash$", "-test.timeout=10s")
	cmd.Env = append(os.Environ(), asCrash+"=1", "GORACE=atexit_sleep_ms=0")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), "panic: boom") {
		t.Errorf("%v, want exit status 2 and the panic:\n%s", err, out)
	}
}
