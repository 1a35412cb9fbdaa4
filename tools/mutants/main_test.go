package main

import (
	"bytes"
	"go/ast"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// module has the files of a small module that the mutants of these tests break. If the function Abs
// is broken, one of its tests fails. If Half is broken, no test fails. Package o has tests inside
// and outside of it.
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

type length int

func Twice(length length) length {
	return 2 * length
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

var (
	answer = 42
	double = 2 * answer
)

func Answer() int { return answer }

func Double() int { return double }

func Set() { text = "set" }

func Last() {}
`,
	"o/o_test.go": `package o_test

import (
	"testing"

	"example.test/m/o"
)

func TestInlined_Returns1(t *testing.T) {
	if o.Inlined() != 1 {
		t.Fatal("not 1")
	}
}

func TestAnswer_Is42(t *testing.T) {
	if o.Answer() != 42 {
		t.Fatal("not 42")
	}
}

func TestDouble_Is84(t *testing.T) {
	if o.Double() != 84 {
		t.Fatal("not 84")
	}
}

func TestCalled_Returns2(t *testing.T) {
	if o.Called() != 2 {
		t.Fatal("not 2")
	}
}
`,
	"n/n_test.go": `package n

import (
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"
)

func TestMutantVariable_IsUnset(t *testing.T) {
	if os.Getenv("SWANSONG_MUTANT") != "" {
		t.Fatal("the environment is not empty")
	}
	TestAbs_OfNegativeNumber(t)
}

func TestSubprocess_RunsTestOfAbs(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestAbs_OfNegativeNumber$")
	cmd.Env = []string{"NOTHING=ELSE"}
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
}

func TestAbs_OfNegativeNumber(t *testing.T) {
	if got := Abs(-3); got != 3 {
		t.Fatalf("Abs(-3) = %d", got)
	}
}

func TestHalf_DoesNotPanic(t *testing.T) { Half(4) }

func TestAbs_WithProcessLeftBehind(t *testing.T) {
	if os.Getenv("LEFT") != "" {
		time.Sleep(time.Hour)
	}
	left := exec.Command(os.Args[0], "-test.run=^TestAbs_WithProcessLeftBehind$")
	left.Env = append(os.Environ(), "LEFT=behind")
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("../left.pid", []byte(strconv.Itoa(left.Process.Pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := Abs(-3); got != 3 {
		t.Fatalf("Abs(-3) = %d", got)
	}
	left.Process.Kill()
	left.Wait()
}

func TestAlwaysFails(t *testing.T) { t.Fatal("fails anyway") }

func TestAlwaysSkipped(t *testing.T) { t.Skip("not today") }
`,
}

// An entry is a mutant in one of the packages n and o of the module that the test writes.
type entry struct{ table, name, text string }

// inN returns an entry of the table of package n. text contains the lines of the entry that follow
// the name.
func inN(name, text string) entry { return entry{"n", name, text} }

// inO returns an entry of the table of package o.
func inO(name, text string) entry { return entry{"o", name, text} }

// writeModule writes the module and the tables of its mutants, and returns its folder.
func writeModule(t *testing.T, entries []entry) (root string) {
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
	for _, table := range []string{"n", "o"} {
		text := "package: ./" + table + "\n"
		for _, e := range entries {
			if e.table == table {
				text += "\nmutant: " + e.name + "\n" + e.text
			}
		}
		write("testdata/mutants/"+table+".txt", text)
	}
	// Set the variables that would otherwise change how the go command builds the module.
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "")
	return root
}

const (
	noSign = "in: func Abs\n-\t\treturn -x\n+\t\treturn x\n"
	whole  = "in: func Half\n-\treturn x / 2\n+\treturn x\n"
)

func TestRun_ReportsVerdictOfEachMutant(t *testing.T) {
	abs, half := "# Abs loses its sign\ntest: TestAbs_OfNegativeNumber\n", "# Half is the whole\ntest: TestHalf_DoesNotPanic\n"
	called := "in: func Called\n-func Called() int { return 2 }\n+func Called() int { "
	second := "if text == `set` { return 3 }; text = `set`; return 2 }\n" // wrong in the second call
	tests := []struct {
		entry
		want string
	}{
		{inN("fails", abs+noSign), "killed: TestAbs_OfNegativeNumber fails"},
		{inN("panics", abs+"in: func Abs\n-return -x\n+panic(x)\n"), "killed: TestAbs_OfNegativeNumber panics"},
		{inN("hangs", abs+"timeout: 1s\nin: func Abs\n-return -x\n+for {}\n"), "killed: TestAbs_OfNegativeNumber times out"},
		{inO("shared-fails", "# x\ntest: TestCalled_Returns2\n"+called+"return 3 }\n"), "killed: TestCalled_Returns2 fails"},
		{inO("shared-panics", "# x\ntest: TestCalled_Returns2\n"+called+"panic(3) }\n"), "killed: TestCalled_Returns2 panics"},
		{inO("shared-hangs", "# x\ntest: TestCalled_Returns2\ntimeout: 1s\n"+called+"for {} }\n"), "killed: TestCalled_Returns2 times out"},
		{inO("shared-with-flag", "# x\ntest: TestCalled_Returns2\nflags: -short\n"+called+"return 3 }\n"), "killed: TestCalled_Returns2 fails"},
		{inO("count-1", "# x\ntest: TestCalled_Returns2\n"+called+second), "SURVIVED: x"},
		{inO("count-2", "# x\ntest: TestCalled_Returns2\ncount: 2\n"+called+second), "killed: TestCalled_Returns2 fails"},
		{inO("shared-survives", "# x\n# y\ntest: TestInlined_Returns1\n"+called+"return 3 }\n"), "SURVIVED: x"},
		{inO("value-is-used", "# x\ntest: TestAnswer_Is42\nin: var answer\n-answer = 42\n+answer = 43\n"), "killed: TestAnswer_Is42 fails"},
		{inO("value-is-computed-with", "# x\ntest: TestDouble_Is84\nin: var answer\n-answer = 42\n+answer = 43\n"), "killed: TestDouble_Is84 fails"},
		{inN("in-function-literal", abs+"in: func Abs\n-if x < 0 {\n-return -x\n+x, zero := x, 0\n+a:\n+for x < zero {\n+break a\n"), "killed: TestAbs_OfNegativeNumber fails"},
		{inO("inlined", "# x\ntest: TestInlined_Returns1\nin: func Inlined\n-func Inlined() int { return 1 }\n+func Inlined() int { return 3 }\n"), "killed: TestInlined_Returns1 fails"},
		{inN("survives", half+whole), "SURVIVED: Half is the whole"},
		{inN("vetted", half+"in: func Half\n-return x / 2\n+x = x; return x\n"), "SURVIVED: Half is the whole"},
		{inN("other-package", "# x\ntest: ./o TestCalled_Returns2\n"+noSign), "SURVIVED: x"},
		{inN("no-result-at-the-end", abs+"in: func Abs\n }\n-\treturn x\n+\tx++\n"), "DOES NOT BUILD: Abs loses its sign"},
		{inN("unused-import", half+"in: func Quarter\n-return half.Of(half.Of(x))\n+return x\n"), "DOES NOT BUILD: Half is the whole"},
		{inN("type-error", abs+"in: func Abs\n-return -x\n+return nil\n"), "DOES NOT BUILD: Abs loses its sign"},
		{inN("unknown-import", abs+"in: file n.go\n package n\n+import _ \"example.test/none\"\n"), "DOES NOT BUILD: Abs loses its sign"},
		{inN("stale", abs+"in: func Abs\n-return 0-x\n+return x\n"), "DOES NOT APPLY: Abs loses its sign"},
		{inN("absent", abs+"in: func Gone\n-return -x\n+return x\n"), "DOES NOT APPLY: Abs loses its sign"},
		{inN("breaks-a-test", abs+"in: file n_test.go\n-return -x\n+return x\n"), "DOES NOT APPLY: Abs loses its sign"},
		{inN("fails-anyway", "# x\ntest: TestAlwaysFails\n"+whole), "BAD BASELINE: ./n TestAlwaysFails fails without the mutant"},
		{inN("misnamed", "# x\ntest: TestAsb\n"+noSign), "BAD BASELINE: ./n has no test TestAsb, or skips it"},
		{inN("misnamed-subtest", "# x\ntest: TestAbs_OfNegativeNumber/nothing\n"+noSign), "BAD BASELINE: ./n has no test TestAbs_OfNegativeNumber/nothing, or skips it"},
		{inN("skips", "# x\ntest: TestAlwaysSkipped\n"+noSign), "BAD BASELINE: ./n has no test TestAlwaysSkipped, or skips it"},
	}

	var entries []entry
	for _, tt := range tests {
		entries = append(entries, tt.entry)
	}
	root := writeModule(t, entries)

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
			t.Errorf("%s: no line of the report says %q", tt.name, tt.want)
		}
	}
	if want := "mutants: 12 killed, 16 not killed, 0 skipped"; !strings.Contains(out.String(), want) {
		t.Errorf("the summary does not contain %q", want)
	}
	if t.Failed() {
		t.Logf("the whole report:\n%s", out.String())
	}

	out.Reset()
	if code := run(t.Context(), []string{"-C", root, "fails", "pan*"}, &out); code != 0 || !strings.Contains(out.String(), "mutants: 2 killed") {
		t.Errorf("exit code %d when all are killed, want 0:\n%s", code, out.String())
	}
	for _, args := range [][]string{{"-C", t.TempDir()}, {"-C", root, "unknown"}, {"-C", root, "["}} {
		if code := run(t.Context(), args, &out); code != 2 {
			t.Errorf("exit code %d with %q, want 2", code, args)
		}
	}
}

func TestRun_CheckFlagReportsInvalidEntries(t *testing.T) {
	abs := "# x\ntest: ^TestAbs_OfNegativeNumber$|^TestHalf_DoesNotPanic$\n"
	root := writeModule(t, []entry{
		inN("applies", abs+noSign),
		inO("table", "# x\ntest: ./n TestAbs_OfNegativeNumber/^Abs.*_=\nin: const two\n-const two = 2\n+const two = 3\n"),
		inN("gone", abs+"in: func Gone\n-return x\n+return 0\n"),
		inN("changed", abs+"in: func Half\n-return x / 3\n+return 0\n"),
		inN("twice", abs+"in: func Quarter\n x = half.Of(x)\n+x++\n"),
		inN("overlaps", abs+noSign+"in: func Abs\n-return -x\n }\n+}\n"),
		inN("test-gone", "# x\ntest: ^TestAbs_OfNegativeNumber$|^TestGone$\n"+noSign),
		inN("subtest-gone", "# x\ntest: ^TestAbs_OfNegativeNumber$/^not_today$\n"+noSign), // "not today" is in the module, but in another test
	})
	const quarter = "func Quarter(x int) int {\n\tx = half.Of(x)\n\tx = half.Of(x)\n\treturn x\n}\n"
	if err := os.WriteFile(filepath.Join(root, "n", "quarter.go"), []byte("//go:build none\n\npackage n\n\n"+quarter), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "o", "two.go"), []byte("package o\n\nconst two = 2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if code := run(t.Context(), []string{"-C", root, "-check"}, &out); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	for _, want := range []string{
		"gone: ./n has no func Gone; ",
		"changed: func Half does not contain these lines; ",
		"twice: func Quarter contains these lines 2 times; ",
		"overlaps: two edits change the same lines of func Abs; ",
		"test-gone: ./n has no test that matches ^TestGone$; ",
		"subtest-gone: ./n ^TestAbs_OfNegativeNumber$ has no subtest that matches ^not_today$: ",
		"mutants: 8 checked, errors: 6",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no line contains %q", want)
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
	out.Reset()
	if code := run(t.Context(), []string{"-C", root, "-check", "applies", "o.txt"}, &out); code != 0 {
		t.Errorf("exit code %d, want 0:\n%s", code, out.String())
	}
}

func TestParseTable_ReportsErrors(t *testing.T) {
	tests := []struct{ text, want string }{
		{"mutant: a\n", "t.txt:1: the table must begin with package: ./folder"},
		{"package: ./n\npackage: ./o\n", "t.txt:2: a table is about one package; "},
		{"package: ./n\ntest: T\n", `t.txt:2: "test: T" stands outside an entry`},
		{"package: ./n\nmutant: a b\n", "t.txt:2: a b: a name is one word, "},
		{"package: ./n\nmutant: a\ntest: T\n" + noSign, "t.txt:2: a: the entry has no reason; "},
		{"package: ./n\nmutant: a\n# x\n" + noSign, "t.txt:2: a: the entry has no test; "},
		{"package: ./n\nmutant: a\n# x\ntest: T\n", "t.txt:2: a: the entry has no edit; "},
		{"package: ./n\nmutant: a\n# x\nflag: -race\n", `t.txt:4: a: unknown key "flag"; `},
		{"package: ./n\nmutant: a\n# x\nflags: -race -count=5\n", "t.txt:4: a: flags has -count; "},
		{"package: ./n\nmutant: a\n# x\ncount: often\n", `t.txt:4: a: count is "often"; it must be `},
		{"package: ./n\nmutant: a\n# x\ncount: 0\n", `t.txt:4: a: count is "0"; it must be `},
		{"package: ./n\nmutant: a\n# x\ntimeout: soon\n", `t.txt:4: a: time: invalid duration "soon"`},
		{"package: ./n\nmutant: a\n# x\ntest: T\nin: Abs\n", `t.txt:5: a: cannot read "Abs"; `},
		{"package: ./n\nmutant: a\n# x\ntest: T\nin: func Abs\n return x\n", "t.txt:5: a: the edit changes nothing; "},
		{"package: ./n\nmutant: a\n# x\ntest: T\nin: func Abs\n+return x\n", "t.txt:5: a: the edit does not say where "},
		{"package: ./n\nmutant: a\n# x\ntest: T\nreturn x\n", `t.txt:5: a: cannot read "return x"; `},
	}
	for _, tt := range tests {
		if _, err := parseTable("t.txt", tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: error %q does not contain %q", tt.text, err, tt.want)
		}
	}
}

// Comments, empty lines, alignment and indentation of the code make no difference to an edit.
func TestEdit_IgnoresCommentsAndIndentation(t *testing.T) {
	const code = `	for {
		// above
		a := 1 // beside

		bb  := 2
		c("//")
	}`
	tests := []struct{ name, edit, want string }{
		{"one line", "-bb := 2", "\tfor {\n\t\t// above\n\t\ta := 1 // beside\n\n\t\tc(\"//\")\n\t}"},
		{"kept line", " a := 1\n+\tadded\n-bb := 2 // was aligned", "\tfor {\n\t\t// above\n\t\ta := 1 // beside\n\t\t\tadded\n\t\tc(\"//\")\n\t}"},
		{"comments above removed lines", "-\t\t\tfor {\n-\t\t\t\ta := 1\n-\t\t\t\tbb := 2\n+\t\t\tloop {\n \t\t\tc(\"//\")", "\tloop {\n\t\tc(\"//\")\n\t}"},
		{"not in order", "-bb := 2\n-a := 1", ""},
	}
	for _, tt := range tests {
		table := "package: ./n\nmutant: m\n# x\ntest: T\nin: func f\n" + tt.edit
		mutants, err := parseTable("t.txt", table)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		lines, got := codeLines(code, true), ""
		for at := range lines {
			if new, n, ok := mutants[0].edits[0].replace(lines[at:]); ok {
				all := strings.Split(code, "\n")
				got = strings.Join(slices.Replace(all, at, at+n, new...), "\n")
			}
		}
		testkit.Equal(t, tt.name, got, tt.want)
	}
}

// Mutants are built into a shared program if they behave there as in a program of their own.
func TestBuildShared_SelectsMutantsForSharedProgram(t *testing.T) {
	test := "# x\ntest: ./n TestAbs_OfNegativeNumber\n"
	half := test + "in: func Half\n-return x / 2\n+"
	root := writeModule(t, []entry{
		inN("body", test+noSign),
		inN("same-body", test+"in: func Abs\n+x++\n return -x\n"),
		inO("no-result", test+"in: func Set\n-func Set() { text = \"set\" }\n+func Set() {}\n"),
		inO("import", test+"in: file o.go\n import _ \"embed\"\n+import _ \"os\"\n"),
		inN("signature", test+"in: func Abs\n-func Abs(x int) int {\n+func Abs(x int) (y int) {\n"),
		inN("declaration", test+"in: func Half\n+const two = 2\n func Half(x int) int {\n"),
		inO("directive", test+"in: func Called\n-//go:noinline\n+//go:nosplit\n"),
		inO("variable", test+"in: var _\n-var _ = Inlined\n+var _ = Called\n"),
		inO("value", test+"in: var answer\n-answer = 42\n+answer = 43\n"),
		inO("type", test+"in: var answer\n-answer = 42\n+answer int32 = 42\n"),
		inN("recovers", half+"x, y := x/2, recover()\n+_ = y\n+return x\n"),
		inN("parameter-hides-its-type", test+"in: func Twice\n-return 2 * length\n+length, two := length, 2\n+_ = two\n+return length\n"),
		inN("redeclares-parameter", half+"var x int\n+return x\n"),
		inN("falls-through", half+"x /= 2\n"),
		inN("reuses-parameter", half+"x, y := x/2, x\n+_ = y\n+return x\n"),
		inN("reuses-parameter-with-pointer", half+"p := &x\n+x, y := x/2, p\n+_ = y\n+return x\n"),
		inN("reuses-parameter-in-literal", half+"p := func() int { return x }\n+x, y := x/2, p\n+_ = y\n+return x\n"),
		inN("loops", half+"for {\n+select {}\n+}\n"),
		inN("breaks", half+"for {\n+break\n+}\n"),
		inN("switches", half+"switch x {\n+case 0:\n+fallthrough\n+case 1:\n+return 0\n+default:\n+if x > 2 { return x } else { panic(x) }\n+}\n"),
		inN("has-no-default", half+"switch x {\n+case 1:\n+return 0\n+}\n"),
		inN("label", half+"a:\n+for x > 2 {\n+break a\n+}\n+return x\n"),
		inO("not-go", test+"in: file text\n-embedded\n+other\n"),
		inN("flags", test+"flags: -tags=x\n"+noSign),
		inN("type-error", test+"in: func Abs\n-return -x\n+return nil\n"),
		inN("other-test", "# x\ntest: ./o TestCalled_Returns2\n"+noSign),
	})
	mutants, err := readTables(filepath.Join(root, "testdata", "mutants"))
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{ctx: t.Context(), out: t.Output(), root: root, temp: t.TempDir(), sources: newSources(root)}
	for _, m := range mutants {
		if err := r.sources.writeOverlay(m, filepath.Join(r.temp, "alone", m.name)); err != nil {
			t.Fatal(err)
		}
	}
	r.buildShared(mutants)
	var got []string
	for _, m := range mutants {
		if m.shared {
			got = append(got, m.name)
		}
	}
	slices.Sort(got)
	testkit.Equal(t, "mutants in the shared program", got, []string{"body", "flags", "label", "loops", "no-result", "other-test",
		"reuses-parameter", "reuses-parameter-in-literal", "reuses-parameter-with-pointer", "same-body", "switches", "value", "variable"})

	// The changed file keeps the line numbers of the original file.
	text, err := os.ReadFile(filepath.Join(r.temp, "shared", "o", "o.go"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "/*line o.go:25:13*/ text = "; !strings.Contains(string(text), want) {
		t.Errorf("no %q in\n%s", want, text)
	}
}

// The body of a mutant that cannot be a block becomes that of a function literal, with the same
// parameters and results.
func TestWrapper_WritesFunctionLiteralWithParametersAndResults(t *testing.T) {
	for code, want := range map[string]string{
		"func f(a, b int, _ bool) (c int, err error) {}": "return func(a int, b int) (c int, err error) {…}(a, b)",
		"func (t *T[K]) f(list ...K) K {}":               "return func(t *T[K], list []K) K {…}(t, list)",
		"func (T) f(int) {}":                             "func()  {…}()",
	} {
		p, err := parse("package p\n" + code)
		if err != nil {
			t.Fatal(err)
		}
		before, after := wrapper(p, p.Decls[0].(*ast.FuncDecl))
		testkit.Equal(t, code, before+"…"+after, want)
	}
}

// A mutant is built into a program of its own if its test fails in the shared program even without
// a mutant. The same is done if its test starts the test binary as a subprocess without the
// environment variable that selects the mutant.
func TestRun_RunsSomeMutantsInProgramOfTheirOwn(t *testing.T) {
	var entries []entry
	for _, test := range []string{"TestMutantVariable_IsUnset", "TestSubprocess_RunsTestOfAbs", "TestAbs_OfNegativeNumber"} {
		entries = append(entries, inN("see-"+test, "# x\ntest: "+test+"\n"+noSign))
	}
	root := writeModule(t, entries)
	var out bytes.Buffer
	if code := run(t.Context(), []string{"-C", root}, &out); code != 0 {
		t.Errorf("exit code %d:\n%s", code, out.String())
	}
}

func TestLimit_GrowsWithTimeOfTestAndCount(t *testing.T) {
	for _, tt := range []struct {
		m    mutant
		took time.Duration
		want time.Duration
	}{
		{mutant{count: 1, timeout: time.Minute}, time.Second, 7 * time.Second},
		{mutant{count: 5, timeout: time.Minute}, time.Second, 23 * time.Second},
		{mutant{count: 5, timeout: 10 * time.Second}, time.Second, 10 * time.Second},
	} {
		if got := tt.m.limit(tt.took); got != tt.want {
			t.Errorf("limit of %d runs after one of %v, at most %v: got %v, want %v", tt.m.count, tt.took, tt.m.timeout, got, tt.want)
		}
	}
}
