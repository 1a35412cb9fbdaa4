package vet_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/vet"
)

// TestReadme_ShowsActualReportsOfChecks checks that the comments in the example of README.md are
// the reports for its lines, and that there are no other reports. A test of package docs checks
// that the example is a copy of testdata/readme.
func TestReadme_ShowsActualReportsOfChecks(t *testing.T) {
	documented, reported := map[int]string{}, map[int]string{}
	for _, r := range analyze(t, "./readme", vet.Analyzers()...) {
		for _, f := range r.pkg.Syntax {
			for _, group := range f.Comments {
				for _, c := range group.List {
					if isReport(c.Text) {
						documented[r.pkg.Fset.Position(c.Pos()).Line] = strings.TrimPrefix(c.Text, "// ")
					}
				}
			}
		}
		for _, d := range r.diagnostics {
			reported[r.pkg.Fset.Position(d.Pos).Line] = r.analyzer.Name + ": " + d.Message
		}
	}
	// A comment in the README need not show the whole message: the beginning of it is enough.
	for line, text := range documented {
		if strings.HasPrefix(reported[line], text) {
			reported[line] = text
		}
	}
	if diff := cmp.Diff(documented, reported); diff != "" || len(documented) < 2 {
		t.Errorf("documented (-) and reported (+), by line:\n%s", diff)
	}
}

func isReport(comment string) bool {
	for _, a := range vet.Analyzers() {
		if strings.HasPrefix(comment, "// "+a.Name+": ") {
			return true
		}
	}
	return false
}
