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

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The module the mutants of this test are run on. Abs is guarded by a test, Half is not. Package o is tested from
// outside, too.
var module = map[string]string{
	"go.mod":       "module example.test/m\n\ngo 1.25\n",
	"half/half.go": "package half\n\nfunc Of(x int) int { return x / 2 }\n",
	"n/n.go": `package n

import "example.test/m/half"

func Abs(x int) int {
	if x < 0 {
		return -x
	}
	return x
}

func Half(x int) int {
	return x / 2
}

func Quarter(x int) int {
	return half.Of(half.Of(x))
}
`,
	"o/text": "embedded\ntext\n",
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

func Set() { text = "set" }

func Last() {}
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

import (
	"os"
	"os/exec"
	"testing"
)

func TestEnvironment(t *testing.T) {
	if os.Getenv("SWANSONG_MUTANT") != "" {
		t.Fatal("what is this?")
	}
	TestAbs(t)
}

func TestSubprocess(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestAbs$")
	cmd.Env = []string{"NOTHING=ELSE"}
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
}

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

// patch writes the patch file of a mutant that replaces a line of n.go.
func patch(header, before, after string) string { return patchOf("n/n.go", header, before, after) }

func patchOf(file, header, before, after string) string {
	lines := strings.Split(module[file], "\n")
	at := slices.Index(lines, before)
	diff := fmt.Sprintf("-%s\n+%s\n %s\n", before, strings.ReplaceAll(after, "\n", "\n+"), lines[at+1])
	added := 1 + strings.Count(after, "\n")
	if at == 0 {
		diff = fmt.Sprintf("@@ -1,2 +1,%d @@\n", 1+added) + diff
	} else {
		diff = fmt.Sprintf("@@ -%d,3 +%d,%d @@\n %s\n", at, at, 2+added, lines[at-1]) + diff
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
		{"together", "killed: TestCalled fails", patchOf("o/o.go", "# x\nTest: ./o TestCalled", "func Called() int { return 2 }", "func Called() int { return 3 }")},
		{"together, panics", "killed: TestCalled panics", patchOf("o/o.go", "# x\nTest: ./o TestCalled", "func Called() int { return 2 }", "func Called() int { panic(3) }")},
		{"together, hangs", "killed: TestCalled times out", patchOf("o/o.go", "# x\nTest: ./o TestCalled\nTimeout: 1s", "func Called() int { return 2 }", "func Called() int { for {} }")},
		{"together, with a flag", "killed: TestCalled fails", patchOf("o/o.go", "# x\nTest: ./o TestCalled\nFlags: -count=2", "func Called() int { return 2 }", "func Called() int { return 3 }")},
		{"together, survives", "SURVIVED: x", patchOf("o/o.go", "# x\nTest: ./o TestInlined", "func Called() int { return 2 }", "func Called() int { return 3 }")},
		{"inlined", "killed: TestInlined fails", patchOf("o/o.go", "# x\nTest: ./o TestInlined", "func Inlined() int { return 1 }", "func Inlined() int { return 3 }")},
		{"survives", "SURVIVED: Half is the whole", patch("# Half is the whole\nTest: ./n TestHalf", "\treturn x / 2", "\treturn x")},
		{"vetted", "SURVIVED: vet minds, we do not", patch("# vet minds, we do not\nTest: ./n TestHalf", "\treturn x / 2", "\tx = x; return x")},
		{"no result at the end", "DOES NOT BUILD: Abs loses its sign", patch(abs, "\treturn x", "\tx++")},
		{"an import too many", "DOES NOT BUILD: x", patch("# x\nTest: ./n TestHalf", "\treturn half.Of(half.Of(x))", "\treturn x")},
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
	if want := "mutants: 8 killed, 16 not killed, 0 skipped"; !strings.Contains(out.String(), want) {
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

// Mutants share a program where that comes to the same thing.
func TestTogether(t *testing.T) {
	abs, neg := "# x\nTest: ./n TestAbs", "\t\treturn -x"
	root := lay(t, map[string]string{
		"body":           patch(abs, neg, "\t\treturn x"),
		"same body":      patch(abs, neg, "\t\tx++\n\t\treturn -x"),
		"no result":      patchOf("o/o.go", "# x\nTest: ./n TestAbs", "func Set() { text = \"set\" }", "func Set() {}"),
		"one import":     patchOf("o/o.go", "# x\nTest: ./n TestAbs", "import _ \"embed\"", "import (\n\t_ \"embed\"\n\t_ \"os\"\n)"),
		"signature":      patch(abs, "func Abs(x int) int {", "func Abs(x int) (y int) {"),
		"declaration":    patch(abs, "func Half(x int) int {", "const two = 2\n\nfunc Half(x int) int {"),
		"directive":      patchOf("o/o.go", "# x\nTest: ./n TestAbs", "//go:noinline", "//go:nosplit"),
		"variable":       patchOf("o/o.go", "# x\nTest: ./n TestAbs", "var _ = Inlined", "var _ = Called"),
		"variable in it": patch(abs, "\treturn x / 2", "\tvar x int\n\treturn x"),
		"falls through":  patch(abs, "\treturn x / 2", "\tx /= 2"),
		"parameter":      patch(abs, "\treturn x / 2", "\tx, y := x/2, x\n\t_ = y\n\treturn x"),
		"label":          patch(abs, "\treturn x / 2", "a:\n\tfor x > 2 {\n\t\tbreak a\n\t}\n\treturn x"),
		"not go":         patchOf("o/text", "# x\nTest: ./n TestAbs", "embedded", "other"),
		"flags":          patch(abs+"\nFlags: -tags=x", neg, "\t\treturn x"),
		"does not type":  patch(abs, neg, "\t\treturn nil"),
		"few":            patch("# x\nTest: ./o TestCalled", neg, "\t\treturn x"),
	})
	r := &runner{ctx: t.Context(), out: t.Output(), root: root, temp: t.TempDir()}
	var mutants []*mutant
	files, _ := filepath.Glob(filepath.Join(root, "testdata", "mutants", "*.patch"))
	for _, file := range files {
		m := r.read(strings.TrimSuffix(filepath.Base(file), ".patch"))
		if m.decided != nil {
			t.Fatal(m.name, *m.decided)
		}
		mutants = append(mutants, m)
	}
	r.together(mutants)
	var got []string
	for _, m := range mutants {
		if m.together {
			got = append(got, m.name)
		}
	}
	if diff := cmp.Diff([]string{"body", "no result", "same body"}, got); diff != "" {
		t.Errorf("who shares a program (-want +got):\n%s", diff)
	}

	// Lines are those of the files, as if nothing had been put in.
	text, err := os.ReadFile(filepath.Join(r.temp, "together", "o", "o.go"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "/*line o.go:16:13*/ text = "; !strings.Contains(string(text), want) {
		t.Errorf("no %q in\n%s", want, text)
	}
}

// A mutant is tried alone where its test fails in the shared program anyway, or where the program is not told of it.
func TestAlone(t *testing.T) {
	patches := map[string]string{}
	for i, test := range []string{"TestEnvironment", "TestSubprocess", "TestAbs"} {
		patches[fmt.Sprint(i)] = patch("# x\nTest: ./n "+test, "\t\treturn -x", "\t\treturn x")
	}
	root := lay(t, patches)
	var out bytes.Buffer
	if code := run(t.Context(), []string{"-C", root}, &out); code != 0 {
		t.Errorf("exit code %d:\n%s", code, out.String())
	}
}
