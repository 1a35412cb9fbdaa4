package ctxshutdown_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The example of the README is the body of Example, which is compiled and run: what a newcomer copies works.
func TestReadmeShowsTheExample(t *testing.T) {
	read := func(name, after, before string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, found := strings.Cut(string(text), after)
		part, _, ended := strings.Cut(rest, before)
		if !found || !ended {
			t.Fatalf("%s: there is nothing between %q and %q", name, after, before)
		}
		return part
	}
	example := read("example_test.go", "func Example() {\n", "\t// Unordered output:")
	readme := read("../README.md", "<!-- the body of Example in ctxshutdown/example_test.go -->\n```go\n", "```\n")
	body := strings.TrimPrefix(strings.ReplaceAll("\n"+example, "\n\t", "\n"), "\n")
	if diff := cmp.Diff(body, readme); diff != "" {
		t.Errorf("README.md does not show the example as it is (-example +README):\n%s", diff)
	}
}
