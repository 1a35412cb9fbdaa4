package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
	"go.uber.org/goleak"
)

const runMain = "LSPHOVER_TEST_MAIN" // the environment variable that makes the test binary the program

func TestMain(m *testing.M) {
	if os.Getenv(runMain) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// program returns the command that runs the example with a PATH that begins with dir.
func program(t *testing.T, dir string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), runMain+"=1", "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return cmd
}

func TestMain_PrintsHoverProgressAndEdit(t *testing.T) {
	out, err := program(t, filepath.Dir(testkit.Gopls(t))).CombinedOutput()
	if err != nil {
		t.Errorf("the program failed: %v", err)
	}
	for _, want := range []string{"func println(args ...Type)", "$/progress {", "package main\n\nimport \"os\"\n\nfunc main() {"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the output does not contain %q:\n%s", want, out)
		}
	}
}

// A gopls that is not a language server makes the program fail with an error that says so.
func TestMain_FailsIfServerDoes(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "gopls"), []byte("#!/bin/sh\necho no server >&2; exit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := program(t, dir).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "no server") {
		t.Errorf("%v, want a failure that contains the output of the server; got\n%s", err, out)
	}
}
