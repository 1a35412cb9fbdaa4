package graceful_test

import (
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
)

// A mistake in the example at the top of the documentation ends the program with the stack of the
// function that has made it. If that is f, Run drains the program first.
// docs/internals/process.md#panics
func TestExample_MistakeEndsProgram(t *testing.T) {
	imports := []string{"context", "fmt", "time", "github.com/swansong-go/swansong/ctxshutdown", "github.com/swansong-go/swansong/graceful"}
	for _, test := range []struct{ name, code, with, stdout string }{
		{"in f", "graceful.Ready(s)", testkit.Mistake, "flushed: <nil>\ndatabase closed\n"},
		{"in a goroutine of s.Go", `fmt.Println("flushed:", work.Err())`, testkit.Mistake + "; _ = work", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			stdout, stderr, code := testkit.RunPlanted(t, imports, test.code, test.with)
			testkit.Equal(t, "exit code", code, 2)
			testkit.Equal(t, "standard output", stdout, test.stdout)
			for _, want := range []string{"panic: assignment to entry in nil map", "main.main.func"} {
				if !strings.Contains(stderr, want) {
					t.Errorf("standard error does not contain %q:\n%s", want, stderr)
				}
			}
		})
	}
}
