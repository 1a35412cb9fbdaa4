package docs

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPackages_HaveDocComments checks that every package has a doc comment.
func TestPackages_HaveDocComments(t *testing.T) {
	documented := map[string]bool{} // for each directory, whether its package has a doc comment
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := d.Name(); {
		case d.IsDir() && (path != ".." && strings.HasPrefix(name, ".") || slices.Contains([]string{"testdata", "node_modules", "bin"}, name)):
			return filepath.SkipDir
		case d.IsDir(), !strings.HasSuffix(name, ".go"), strings.HasSuffix(name, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		documented[dir] = documented[dir] || f.Doc != nil
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir, has := range documented {
		if !has {
			t.Errorf("%s has no package doc comment", dir)
		}
	}
	if len(documented) < 50 {
		t.Errorf("only %d packages are found in the whole repository; does the test look in the wrong place?", len(documented))
	}
}

// TestPackages_CheckForLeakedGoroutines checks that the tests of every package end with goleak, in
// TestMain.
func TestPackages_CheckForLeakedGoroutines(t *testing.T) {
	checked := map[string]bool{} // for each directory, whether its tests end with goleak
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := d.Name(); {
		case d.IsDir() && (path != ".." && strings.HasPrefix(name, ".") || slices.Contains([]string{"testdata", "node_modules", "bin"}, name)):
			return filepath.SkipDir
		case d.IsDir(), !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		checked[dir] = checked[dir] || goleaks.Match(source)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir, ok := range checked {
		if !ok {
			t.Errorf("%s: TestMain does not check for leaked goroutines; call goleak.VerifyTestMain or goleak.Find", dir)
		}
	}
	if len(checked) < 40 {
		t.Errorf("only %d packages with tests are found in the whole repository; does the test look in the wrong place?", len(checked))
	}
}

// goleaks matches a TestMain that checks for leaked goroutines after all tests.
var goleaks = regexp.MustCompile(`(?s)\nfunc TestMain\(m \*testing\.M\) \{.*goleak\.(VerifyTestMain\(m\b|Find\()`)
