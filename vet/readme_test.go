package vet_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/vet"
	"golang.org/x/tools/go/analysis/analysistest"
)

// What README.md says that is reported, is, on these lines and in these words, and nothing else. The test of package docs sees to
// it that the code there is this one.
func TestReadme(t *testing.T) {
	said, reported := map[int]string{}, map[int]string{}
	for _, a := range vet.Analyzers() {
		for _, r := range analysistest.Run(wantsNothing{}, analysistest.TestData(), a, "./readme") {
			fset := r.Pass.Fset
			for _, f := range r.Pass.Files {
				for _, group := range f.Comments {
					for _, c := range group.List {
						if isSaid(c.Text) {
							said[fset.Position(c.Pos()).Line] = strings.TrimPrefix(c.Text, "// ")
						}
					}
				}
			}
			for _, d := range r.Diagnostics {
				reported[fset.Position(d.Pos).Line] = a.Name + ": " + d.Message
			}
		}
	}
	for line, text := range said { // of a message, it is the beginning
		if strings.HasPrefix(reported[line], text) {
			reported[line] = text
		}
	}
	if diff := cmp.Diff(said, reported); diff != "" || len(said) < 2 {
		t.Errorf("said (-) and reported (+), by line:\n%s", diff)
	}
}

func isSaid(comment string) bool {
	for _, a := range vet.Analyzers() {
		if strings.HasPrefix(comment, "// "+a.Name+": ") {
			return true
		}
	}
	return false
}

// wantsNothing is for code without comments that say what is wanted in analysistest's way: a page should not have them.
type wantsNothing struct{}

func (wantsNothing) Errorf(string, ...any) {}
