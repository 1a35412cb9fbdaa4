package ctxshutdown_test

import (
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// stacksAtInit has the stacks of all goroutines at the time when the package has just been
// initialized.
var stacksAtInit = func() string {
	stacks := make([]byte, 1<<20)
	return string(stacks[:runtime.Stack(stacks, true)])
}()

func TestImport_StartsNoGoroutine(t *testing.T) {
	for _, by := range []string{"created by github.com/swansong-go/swansong/ctxshutdown.", "created by github.com/swansong-go/swansong/internal/"} {
		if strings.Contains(stacksAtInit, by) {
			t.Errorf("the import has started a goroutine:\n%s", stacksAtInit)
		}
	}
}

// The package must not import packages that are large or have side effects when imported, such as
// net/http and os/signal.
func TestImport_NeedsOnlySmallStandardPackages(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	for _, dep := range deps {
		switch dep {
		case "net/http", "os/signal", "os/exec", "expvar", "flag", "testing", "crypto/tls", "log/syslog":
			t.Errorf("the package imports %s", dep)
		}
		if first, _, _ := strings.Cut(dep, "/"); strings.Contains(first, ".") && !strings.HasPrefix(dep, "github.com/swansong-go/swansong/") {
			t.Errorf("the package imports %s, which is not of the standard library", dep)
		}
	}
	if len(deps) < 10 {
		t.Errorf("go list prints only %v", deps)
	}
}
