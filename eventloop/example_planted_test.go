package eventloop_test

import (
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
)

// A mistake in a callback of the example at the top of the documentation ends the program with the
// stack of the callback. docs/internals/eventloop.md#panics
func TestExample_MistakeInCallbackEndsProgram(t *testing.T) {
	imports := []string{"context", "fmt", "time", "github.com/swansong-go/swansong/ctxshutdown", "github.com/swansong-go/swansong/eventloop"}
	stdout, stderr, code := testkit.RunPlanted(t, imports, "hits++ })", testkit.Mistake+" })")
	testkit.Equal(t, "exit code", code, 2)
	testkit.Equal(t, "standard output", stdout, "")
	for _, want := range []string{"eventloop: panic in a callback of the event loop", "panic: assignment to entry in nil map", "main.main.func1"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("standard error does not contain %q:\n%s", want, stderr)
		}
	}
}
