package testkit

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Mistake is the text that a test of an example plants: a write to a nil map.
const Mistake = `var m map[string]int; m["planted"]++`

// RunPlanted runs the function Example of example_test.go as a program, in which with replaces the
// code. It returns what the program has written, and its exit code. imports are the packages that the
// function uses.
func RunPlanted(t *testing.T, imports []string, code, with string) (stdout, stderr string, exitCode int) {
	t.Helper()
	file, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, body, found := strings.Cut(string(file), "\nfunc Example() {\n")
	body, _, _ = strings.Cut(body, "\n}\n")
	if n := strings.Count(body, code); !found || n != 1 {
		t.Fatalf("the function Example has the code %q %d times, but must have it once", code, n)
	}
	dir := t.TempDir()
	main := filepath.Join(dir, "main.go")
	source := "package main\n\nimport (\n\t\"" + strings.Join(imports, "\"\n\t\"") + "\"\n)\n\nfunc main() {\n" + strings.Replace(body, code, with, 1) + "\n}\n"
	if err := os.WriteFile(main, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	// The program is built as a package of this module that exists only in the overlay.
	here, err := filepath.Abs("planted")
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(here, "main.go"): main}})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, b, 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "planted.exe")
	if out, err := exec.Command("go", "build", "-overlay", overlay, "-o", program, "./planted").CombinedOutput(); err != nil {
		t.Fatalf("the program cannot be built: %v\n%s\n%s", err, out, source)
	}
	var o, e bytes.Buffer
	cmd := exec.Command(program)
	cmd.Stdout, cmd.Stderr = &o, &e
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}
