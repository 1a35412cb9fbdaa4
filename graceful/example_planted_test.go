package graceful_test

import (
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
)

// A mistake in the first example of the documentation, in the package comment and in func Example,
// ends the program and prints the stack of the function that has made the mistake. If this function
// is f, Run drains the program first. docs/internals/process.md#panics
func TestExample_PanicInExampleFunctionEndsProgramAndPrintsStack(t *testing.T) {
	const module = "github.com/swansong-go/swansong/"
	inDoc := testkit.ExampleInDoc(t, `type database struct{}

func (database) Close() { fmt.Println("database closed") }

var (
	db  database
	srv = &http.Server{}
)
`, "", "context", "fmt", "log", "net", "net/http", "os", module+"ctxshutdown", module+"graceful", module+"httpdrain")
	inDoc = strings.Replace(inDoc, `":8080"`, `"127.0.0.1:0"`, 1)
	example := testkit.ExampleFunc(t, "context", "fmt", "time", module+"ctxshutdown", module+"graceful")
	for _, test := range []struct{ name, program, code, with, stdout string }{
		{"package comment, in f", inDoc, "graceful.Ready(s)", testkit.Mistake, "database closed\n"},
		{"func Example, in f", example, "graceful.Ready(s)", testkit.Mistake, "flushed: <nil>\ndatabase closed\n"},
		{"func Example, in a goroutine of s.Go", example, `fmt.Println("flushed:", work.Err())`, testkit.Mistake + "; _ = work", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			stdout, stderr, code := testkit.RunPlanted(t, test.program, test.code, test.with)
			testkit.Equal(t, "exit code", code, 2)
			testkit.Equal(t, "standard output", stdout, test.stdout)
			for _, want := range []string{"panic: assignment to entry in nil map", "main.go:"} {
				if !strings.Contains(stderr, want) {
					t.Errorf("standard error does not contain %q:\n%s", want, stderr)
				}
			}
		})
	}
}
