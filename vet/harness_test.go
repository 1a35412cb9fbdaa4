package vet_test

import (
	"bytes"
	"errors"
	"fmt"
	"go/format"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/packages"
)

// A report is what one analyzer reports for one package.
type report struct {
	analyzer    *analysis.Analyzer
	pkg         *packages.Package
	diagnostics []analysis.Diagnostic
}

// analyze runs analyzers on the packages of testdata that match pattern, and on their tests.
//
// It reads only these packages from source, and what they import from export data. Package
// analysistest would read and analyze all of that from source, to learn which functions never
// return. This takes ten times the processor time, for each of the mutants. So analyze knows these
// functions from a list, neverReturn. How the analyzers learn of them under go vet is tested in
// cmd/swansongvet, on the same testdata.
func analyze(t *testing.T, pattern string, analyzers ...*analysis.Analyzer) (reports []report) {
	t.Helper()
	pkgs, err := packages.Load(&packages.Config{
		Mode:  packages.LoadSyntax | packages.NeedModule,
		Dir:   "testdata",
		Tests: true,
		Env:   append(os.Environ(), "GOPROXY=off", "GOWORK=off"), // the module of testdata is not in the workspace
	}, pattern)
	if err != nil {
		t.Fatalf("packages.Load: %v", err)
	}
	for _, p := range pkgs {
		for _, err := range p.Errors {
			t.Fatalf("%s: %v", p.ID, err)
		}
		for _, a := range analyzers {
			r := report{analyzer: a, pkg: p}
			results := map[*analysis.Analyzer]any{}
			run(t, a, p, results, func(d analysis.Diagnostic) { r.diagnostics = append(r.diagnostics, d) })
			reports = append(reports, r)
		}
	}
	return reports
}

// run runs an analyzer on a package, after the analyzers that it requires, and adds what they
// return to results.
func run(t *testing.T, a *analysis.Analyzer, p *packages.Package, results map[*analysis.Analyzer]any, report func(analysis.Diagnostic)) {
	t.Helper()
	if _, done := results[a]; done {
		return
	}
	for _, required := range a.Requires {
		run(t, required, p, results, func(analysis.Diagnostic) {})
	}
	result, err := a.Run(&analysis.Pass{
		Analyzer:          a,
		Fset:              p.Fset,
		Files:             p.Syntax,
		Pkg:               p.Types,
		TypesInfo:         p.TypesInfo,
		TypesSizes:        p.TypesSizes,
		Module:            &analysis.Module{Path: p.Module.Path, GoVersion: p.Module.GoVersion},
		ResultOf:          results,
		Report:            report,
		ReadFile:          os.ReadFile,
		ExportObjectFact:  func(types.Object, analysis.Fact) {},
		ExportPackageFact: func(analysis.Fact) {},
		// Of all analyzers here, only ctrlflow imports facts, the results for other packages. It
		// has one kind of fact: that a function never returns.
		ImportObjectFact: func(obj types.Object, _ analysis.Fact) bool {
			f, ok := obj.(*types.Func)
			return ok && neverReturn[f.FullName()]
		},
	})
	if err != nil {
		t.Fatalf("%s: %s: %v", p.ID, a.Name, err)
	}
	results[a] = result
}

var neverReturn = map[string]bool{"os.Exit": true, "log.Fatal": true, "(*testing.common).Fatal": true}

// check compares the reports of an analyzer, and the code after its suggested fixes, with what the
// files in testdata expect.
func check(t *testing.T, a *analysis.Analyzer, pattern string) {
	t.Helper()
	wanted := 0
	for _, r := range analyze(t, pattern, a) {
		wanted += r.checkMessages(t)
		r.checkFixes(t)
	}
	if wanted == 0 {
		t.Errorf("%s: no file expects a report", pattern)
	}
}

// checkMessages checks that each line has the messages that its comment expects, and no others. It
// returns the number of these comments. Each is "// want" and one regular expression or more,
// within backquotes.
func (r report) checkMessages(t *testing.T) (wanted int) {
	t.Helper()
	place := func(pos token.Pos) string {
		at := r.pkg.Fset.Position(pos)
		return fmt.Sprintf("%s:%d", at.Filename, at.Line)
	}
	messages := map[string][]string{}
	for _, d := range r.diagnostics {
		messages[place(d.Pos)] = append(messages[place(d.Pos)], d.Message)
	}
	for _, f := range r.pkg.Syntax {
		for _, group := range f.Comments {
			for _, c := range group.List {
				text, ok := strings.CutPrefix(c.Text, "// want ")
				if !ok {
					continue
				}
				wanted++
				line := place(c.Pos())
				if !wantList.MatchString(text) {
					t.Errorf("%s: %q is not a list of regular expressions within backquotes", line, text)
				}
				for _, want := range wantPattern.FindAllStringSubmatch(text, -1) {
					matches := regexp.MustCompile(want[1]).MatchString
					i := slices.IndexFunc(messages[line], matches)
					if i < 0 {
						t.Errorf("%s: no message matches %q; messages are %q", line, want[1], messages[line])
						continue
					}
					messages[line] = slices.Delete(messages[line], i, i+1)
				}
			}
		}
	}
	for _, line := range slices.Sorted(maps.Keys(messages)) {
		for _, message := range messages[line] {
			t.Errorf("%s: unexpected message: %s", line, message)
		}
	}
	return wanted
}

var (
	wantPattern = regexp.MustCompile("`([^`]*)`")
	wantList    = regexp.MustCompile("^(`[^`]*` ?)+$")
)

// checkFixes applies the suggested fixes to each file of a package, and compares the result with
// the golden file beside it. A file without a golden file must have no fixes, and a file with one
// must have some.
func (r report) checkFixes(t *testing.T) {
	t.Helper()
	type edit struct {
		from, to int // offsets, in the file, of the text that the edit replaces
		text     string
	}
	edits := map[string][]edit{}
	for _, d := range r.diagnostics {
		for _, fix := range d.SuggestedFixes {
			for _, e := range fix.TextEdits {
				file := r.pkg.Fset.File(e.Pos)
				edits[file.Name()] = append(edits[file.Name()], edit{file.Offset(e.Pos), file.Offset(max(e.Pos, e.End)), string(e.NewText)})
			}
		}
	}
	for _, name := range r.pkg.CompiledGoFiles {
		golden, err := os.ReadFile(name + ".golden")
		if errors.Is(err, fs.ErrNotExist) && len(edits[name]) == 0 {
			continue
		}
		if err != nil {
			t.Errorf("the fixed code has nothing to be compared with: %v", err)
			continue
		}
		original, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var fixed bytes.Buffer
		end := 0
		list := edits[name]
		slices.SortFunc(list, func(a, b edit) int { return a.from - b.from })
		for _, e := range slices.Compact(list) { // two reports may suggest the same edit
			if e.from < end {
				t.Errorf("%s: the fixes at offset %d overlap", name, e.from)
				continue
			}
			fixed.Write(original[end:e.from])
			fixed.WriteString(e.text)
			end = e.to
		}
		fixed.Write(original[end:])
		got, err := format.Source(fixed.Bytes())
		if err != nil {
			t.Errorf("%s: the fixed code is not Go: %v", name, err)
			continue
		}
		if diff := cmp.Diff(string(golden), string(got)); diff != "" {
			t.Errorf("%s: code after the suggested fixes (-want +got):\n%s", name, diff)
		}
	}
}
