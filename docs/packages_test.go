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

// Every package says what it is for.
func TestPackages(t *testing.T) {
	documented := map[string]bool{} // by directory
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
			t.Errorf("%s has no package documentation", dir)
		}
	}
	if len(documented) < 50 {
		t.Errorf("there are %d packages in all; has the test lost them?", len(documented))
	}
}

// The tests of every package end with a look for goroutines that are left.
func TestGoleak(t *testing.T) {
	looks := map[string]bool{} // by directory
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
		looks[dir] = looks[dir] || goleaks.Match(source)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir, does := range looks {
		if !does {
			t.Errorf("%s: no test looks for goroutines that are left, by goleak.VerifyTestMain or goleak.Find", dir)
		}
	}
	if len(looks) < 40 {
		t.Errorf("there are %d packages with tests in all; has the test lost them?", len(looks))
	}
}

// The look is made by TestMain, after all tests.
var goleaks = regexp.MustCompile(`(?s)\nfunc TestMain\(m \*testing\.M\) \{.*goleak\.(VerifyTestMain\(m\b|Find\()`)
