package eventloop_test

import (
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
)

// The test adds a panic to a callback of the first example of the documentation, once in that of
// the package comment and once in func Example. The panic ends the program and prints the stack of
// the callback.
// docs/internals/eventloop.md#panics
func TestExample_PanicInItsCallbackEndsProgramWithStack(t *testing.T) {
	const module = "github.com/swansong-go/swansong/"
	inDoc := testkit.ExampleInDoc(t, `var state int

func serve(ctx, waitCtx context.Context) error {`, `	fmt.Println("stopped:", err)
	return err
}

func main() {
	serve(context.Background(), context.Background())
	fmt.Println("main has returned")
}`, "context", "fmt", module+"eventloop")
	for _, test := range []struct{ name, program, code, with string }{
		{"package comment", inDoc, "state++ }", testkit.Mistake + " }"},
		{"func Example", testkit.ExampleFunc(t, "context", "fmt", "time", module+"ctxshutdown", module+"eventloop"), "hits++ })", testkit.Mistake + " })"},
	} {
		t.Run(test.name, func(t *testing.T) {
			stdout, stderr, code := testkit.RunPlanted(t, test.program, test.code, test.with)
			testkit.Equal(t, "exit code", code, 2)
			testkit.Equal(t, "standard output", stdout, "")
			for _, want := range []string{"eventloop: panic in a callback of the event loop", "panic: assignment to entry in nil map", "main.go:"} {
				if !strings.Contains(stderr, want) {
					t.Errorf("standard error does not contain %q:\n%s", want, stderr)
				}
			}
		})
	}
}
