package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The module the mutants of this test are run on. Abs is guarded by a test, Half is not.
var module = map[string]string{
	"go.mod": "module example.test/m\n\ngo 1.25\n",
	"n/n.go": `package n

func Abs(x int) int {
	if x < 0 {
		return -x
	}
	return x
}

func Half(x int) int {
	return x / 2
}
`,
	"n/n_test.go": `package n

import "testing"

func TestAbs(t *testing.T) {
	if got := Abs(-3); got != 3 {
		t.Fatalf("Abs(-3) = %d", got)
	}
}

func TestHalf(t *testing.T) { Half(4) }

func TestBroken(t *testing.T) { t.Fatal("fails anyway") }

func TestSkipped(t *testing.T) { t.Skip("not today") }
`,
}

// patch writes the patch file of a mutant that replaces one line of n.go.
func patch(header, before, after string) string {
	lines := strings.Split(module["n/n.go"], "\n")
	at := slices.Index(lines, before)
	diff := fmt.Sprintf("-%s\n+%s\n %s\n", before, after, lines[at+1])
	if at == 0 {
		diff = "@@ -1,2 +1,2 @@\n" + diff
	} else {
		diff = fmt.Sprintf("@@ -%d,3 +%d,3 @@\n %s\n", at, at, lines[at-1]) + diff
	}
	return header + "\n\ndiff --git a/n/n.go b/n/n.go\n--- a/n/n.go\n+++ b/n/n.go\n" + diff
}

func TestVerdicts(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil && os.Getenv("CI") == "" {
		t.Skip("the mutants tool needs git, which the code it checks does not")
	}
	abs := "# Abs loses its sign\nTest: ./n TestAbs"
	tests := []struct{ name, want, patch string }{
		{"fails", "killed: TestAbs fails", patch(abs, "\t\treturn -x", "\t\treturn x")},
		{"panics", "killed: TestAbs panics", patch(abs, "\t\treturn -x", "\t\tpanic(x)")},
		{"hangs", "killed: TestAbs times out", patch(abs+"\nTimeout: 1s", "\t\treturn -x", "\t\tfor {}")},
		{"survives", "SURVIVED: Half is the whole", patch("# Half is the whole\nTest: ./n TestHalf", "\treturn x / 2", "\treturn x")},
		{"vetted", "SURVIVED: vet minds, we do not", patch("# vet minds, we do not\nTest: ./n TestHalf", "\treturn x / 2", "\tx = x; return x")},
		{"uncompiled", "DOES NOT BUILD: Abs loses its sign", patch(abs, "\t\treturn -x", "\t\treturn nil")},
		{"unresolved", "DOES NOT BUILD: Abs loses its sign", patch(abs, "package n", "package n; import _ \"example.test/none\"")},
		{"stale", "DOES NOT APPLY: Abs loses its sign", strings.Replace(patch(abs, "\t\treturn -x", "\t\treturn x"), "-x", "0-x", 1)},
		{"absent", "DOES NOT APPLY: Abs loses its sign", strings.ReplaceAll(patch(abs, "\t\treturn -x", "\t\treturn x"), "/n.go", "/gone.go")},
		{"cheats", "DOES NOT APPLY: Abs loses its sign", strings.ReplaceAll(patch(abs, "\t\treturn -x", "\t\treturn x"), "/n.go", "/n_test.go")},
		{"red", "BAD BASELINE: ./n TestBroken fails without the patch", patch("# x\nTest: ./n TestBroken", "\treturn x / 2", "\treturn x")},
		{"misnamed", "BAD BASELINE: ./n has no test TestAsb, or skips it", patch("# x\nTest: ./n TestAsb", "\t\treturn -x", "\t\treturn x")},
		{"misnamed subtest", "BAD BASELINE: ./n has no test TestAbs/nothing, or skips it", patch("# x\nTest: ./n TestAbs/nothing", "\t\treturn -x", "\t\treturn x")},
		{"skips", "BAD BASELINE: ./n has no test TestSkipped, or skips it", patch("# x\nTest: ./n TestSkipped", "\t\treturn -x", "\t\treturn x")},
		{"headless", "BAD HEADER: the header needs `# what it breaks` and `Test: ./package TestRegexp`", patch("# x", "\t\treturn -x", "\t\treturn x")},
		{"misspelt", "BAD HEADER: \"Flag: -race\" is neither # … nor Test: …, Flags: …, Timeout: …", patch(abs+"\nFlag: -race", "\t\treturn -x", "\t\treturn x")},
	}

	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range module {
		write(name, text)
	}
	for _, tt := range tests {
		write("testdata/mutants/"+tt.name+".patch", tt.patch)
	}
	// The module must be seen as a user's, whatever surrounds this test.
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "")

	var out bytes.Buffer
	if code := run(t.Context(), []string{"-C", root}, &out); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	for _, tt := range tests {
		verdict, detail, _ := strings.Cut(tt.want, ": ")
		found := false
		for line := range strings.Lines(out.String()) {
			found = found || strings.HasPrefix(line, verdict+" ") && strings.HasSuffix(line, "s  "+tt.name+": "+detail+"\n")
		}
		if !found {
			t.Errorf("%s: no line says %q", tt.name, tt.want)
		}
	}
	if want := "mutants: 3 killed, 13 not killed, 0 skipped"; !strings.Contains(out.String(), want) {
		t.Errorf("the summary does not say %q", want)
	}
	if t.Failed() {
		t.Logf("the whole report:\n%s", out.String())
	}

	out.Reset()
	if code := run(t.Context(), []string{"-C", root, "fails", "panics.patch"}, &out); code != 0 {
		t.Errorf("exit code %d when all are killed, want 0:\n%s", code, out.String())
	}
	if code := run(t.Context(), []string{"-C", t.TempDir()}, &out); code != 2 {
		t.Errorf("exit code %d without any patch, want 2", code)
	}
}
