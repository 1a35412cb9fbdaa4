package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The module the mutants of this test are run on. Abs is guarded by a test, Half is not. Package o is tested from outside,
// and so its test program can be linked anew from what is there, unless what may be inlined has changed.
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
	"o/text": "embedded",
	"o/inside_test.go": `package o

var _ = text
`,
	"o/o.go": `// Package o is small.
package o

import _ "embed"

//go:embed text
var text string

//go:noinline
func Called() int { return 2 }

func Inlined() int { return 1 }

var _ = Inlined
`,
	"o/o_test.go": `package o_test

import (
	"testing"

	"example.test/m/o"
)

func TestInlined(t *testing.T) {
	if o.Inlined() != 1 {
		t.Fatal("not 1")
	}
}

func TestCalled(t *testing.T) {
	if o.Called() != 2 {
		t.Fatal("not 2")
	}
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
func patch(header, before, after string) string { return patchOf("n/n.go", header, before, after) }

func patchOf(file, header, before, after string) string {
	lines := strings.Split(module[file], "\n")
	at := slices.Index(lines, before)
	diff := fmt.Sprintf("-%s\n+%s\n %s\n", before, after, lines[at+1])
	if at == 0 {
		diff = "@@ -1,2 +1,2 @@\n" + diff
	} else {
		diff = fmt.Sprintf("@@ -%d,3 +%d,3 @@\n %s\n", at, at, lines[at-1]) + diff
	}
	return header + strings.ReplaceAll("\n\ndiff --git a/F b/F\n--- a/F\n+++ b/F\n", "F", file) + diff
}

// lay writes the module and patches, by name.
func lay(t *testing.T, patches map[string]string) (root string) {
	if _, err := exec.LookPath("git"); err != nil && os.Getenv("CI") == "" {
		t.Skip("the mutants tool needs git, which the code it checks does not")
	}
	root = t.TempDir()
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
	for name, text := range patches {
		write("testdata/mutants/"+name+".patch", text)
	}
	// The module must be seen as a user's, whatever surrounds this test.
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "")
	return root
}

func TestVerdicts(t *testing.T) {
	abs := "# Abs loses its sign\nTest: ./n TestAbs"
	tests := []struct{ name, want, patch string }{
		{"fails", "killed: TestAbs fails", patch(abs, "\t\treturn -x", "\t\treturn x")},
		{"panics", "killed: TestAbs panics", patch(abs, "\t\treturn -x", "\t\tpanic(x)")},
		{"hangs", "killed: TestAbs times out", patch(abs+"\nTimeout: 1s", "\t\treturn -x", "\t\tfor {}")},
		{"relinked", "killed: TestCalled fails", patchOf("o/o.go", "# x\nTest: ./o TestCalled", "func Called() int { return 2 }", "func Called() int { return 3 }")},
		{"relinked, panics", "killed: TestCalled panics", patchOf("o/o.go", "# x\nTest: ./o TestCalled", "func Called() int { return 2 }", "func Called() int { panic(3) }")},
		{"relinked, hangs", "killed: TestCalled times out", patchOf("o/o.go", "# x\nTest: ./o TestCalled\nTimeout: 1s", "func Called() int { return 2 }", "func Called() int { for {} }")},
		{"relinked, with a flag", "killed: TestCalled fails", patchOf("o/o.go", "# x\nTest: ./o TestCalled\nFlags: -count=2", "func Called() int { return 2 }", "func Called() int { return 3 }")},
		{"relinked, survives", "SURVIVED: x", patchOf("o/o.go", "# x\nTest: ./o TestInlined", "func Called() int { return 2 }", "func Called() int { return 3 }")},
		{"inlined", "killed: TestInlined fails", patchOf("o/o.go", "# x\nTest: ./o TestInlined", "func Inlined() int { return 1 }", "func Inlined() int { return 3 }")},
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

	patches := map[string]string{}
	for _, tt := range tests {
		patches[tt.name] = tt.patch
	}
	root := lay(t, patches)

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
	if want := "mutants: 8 killed, 14 not killed, 0 skipped"; !strings.Contains(out.String(), want) {
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

// What go test would have built is linked from what has been compiled, but only where that comes to the same thing.
func TestRelink(t *testing.T) {
	root := lay(t, map[string]string{
		"called":  patchOf("o/o.go", "# x\nTest: ./o TestCalled", "func Called() int { return 2 }", "func Called() int { return 3 }"),
		"inlined": patchOf("o/o.go", "# x\nTest: ./o TestInlined", "func Inlined() int { return 1 }", "func Inlined() int { return 3 }"),
		"inside":  patch("# x\nTest: ./n TestHalf", "\treturn x / 2", "\treturn x"),
		"flags":   patchOf("o/o.go", "# x\nTest: ./o TestCalled\nFlags: -tags=x", "func Called() int { return 2 }", "func Called() int { return 3 }"),
	})
	r := &runner{ctx: t.Context(), root: root, temp: t.TempDir(), kits: map[string]func() (kit, error){}}
	got := map[string]bool{}
	for _, name := range []string{"called", "inlined", "inside", "flags"} {
		path := filepath.Join(root, "testdata", "mutants", name+".patch")
		_, s, err := readHeader(path)
		overlay, err2 := r.overlay(name, path)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		got[name] = r.relink(s, overlay) != ""
	}
	if diff := cmp.Diff(map[string]bool{"called": true, "inlined": false, "inside": false, "flags": false}, got); diff != "" {
		t.Errorf("who was linked from what is there (-want +got):\n%s", diff)
	}
}
