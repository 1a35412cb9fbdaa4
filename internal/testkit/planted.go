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

// Mistake is code that a test plants in an example: a write to a nil map, which panics.
const Mistake = `var m map[string]int; m["planted"]++`

// ExampleFunc returns the program that the function Example of example_test.go shows. imports are
// the packages that it uses.
func ExampleFunc(t *testing.T, imports ...string) (program string) {
	t.Helper()
	file, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, body, found := strings.Cut(string(file), "\nfunc Example() {\n")
	body, _, _ = strings.Cut(body, "\n}\n")
	if !found {
		t.Fatal("example_test.go has no function Example")
	}
	return importing(imports) + "func main() {\n" + body + "\n}\n"
}

// ExampleInDoc returns the program at the beginning of the package comment in doc.go. It puts the
// code of the comment between the texts head and tail, which declare the names that the comment
// only uses. imports are the packages that the program uses.
func ExampleInDoc(t *testing.T, head, tail string, imports ...string) (program string) {
	t.Helper()
	file, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var code []string
	for line := range strings.Lines(string(file)) {
		text, isCode := strings.CutPrefix(line, "//\t")
		if isCode {
			code = append(code, text)
		} else if len(code) > 0 && line != "//\n" {
			break
		}
	}
	return importing(imports) + head + "\n" + strings.Join(code, "") + tail + "\n"
}

func importing(packages []string) string {
	return "package main\n\nimport (\n\t\"" + strings.Join(packages, "\"\n\t\"") + "\"\n)\n\n"
}

// RunPlanted replaces code, which the program must contain exactly once, by replacement, and runs
// the changed program. It returns the output of the program and its exit code.
func RunPlanted(t *testing.T, program, code, replacement string) (stdout, stderr string, exitCode int) {
	t.Helper()
	if n := strings.Count(program, code); n != 1 {
		t.Fatalf("the example has the code %q %d times, but must have it once:\n%s", code, n, program)
	}
	dir := t.TempDir()
	main := filepath.Join(dir, "main.go")
	source := strings.Replace(program, code, replacement, 1)
	if err := os.WriteFile(main, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	// The overlay of go build makes the program a package of this module, so that it can import the
	// other packages, although the repository does not contain it.
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
	executable := filepath.Join(dir, "planted.exe")
	if out, err := exec.Command("go", "build", "-overlay", overlay, "-o", executable, "./planted").CombinedOutput(); err != nil {
		t.Fatalf("the program cannot be built: %v\n%s\n%s", err, out, source)
	}
	var o, e bytes.Buffer
	cmd := exec.Command(executable)
	cmd.Stdout, cmd.Stderr = &o, &e
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}
