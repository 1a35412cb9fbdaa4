package early_test

import (
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A package with more imports is initialized later, and a signal until then ends the program.
func TestPackageEarly_ImportsFewPackages(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "early.go", nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range f.Imports {
		if name, _ := strconv.Unquote(i.Path.Value); !slices.Contains([]string{"os", "os/signal", "syscall"}, name) {
			t.Errorf("package early imports %s", name)
		}
	}
}
