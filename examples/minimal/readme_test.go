package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What the README shows is compiled.
func TestReadmeShowsTheProgram(t *testing.T) {
	between := func(name, after, before string) string {
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
	program := between("main.go", "func serve(", "\n}\n")
	readme := between("../../README.md", "<!-- from examples/minimal/main.go -->\n```go\nfunc serve(", "\n}\n```\n")
	if diff := cmp.Diff(program, readme); diff != "" {
		t.Errorf("README.md does not show examples/minimal/main.go as it is (-program +README):\n%s", diff)
	}
}
