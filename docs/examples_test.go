package docs

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every function that users can call has an example.
func TestExamples(t *testing.T) {
	packages := map[string][]string{} // files by directory
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch name := d.Name(); {
			case path != ".." && strings.HasPrefix(name, "."), slices.Contains(notForUsers, name):
				return filepath.SkipDir
			}
		} else if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".pb.go") {
			packages[filepath.Dir(path)] = append(packages[filepath.Dir(path)], path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	functions := 0
	for dir, files := range packages {
		set := token.NewFileSet()
		var parsed []*ast.File
		for _, name := range files {
			f, err := parser.ParseFile(set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			parsed = append(parsed, f)
		}
		p, err := doc.NewFromFiles(set, parsed, "example.test/"+filepath.ToSlash(dir))
		if err != nil || p.Name == "main" {
			continue // tests alone, or a program
		}
		all := p.Funcs
		for _, typ := range p.Types {
			all = append(all, typ.Funcs...)
		}
		for _, f := range all {
			functions++
			if len(f.Examples) == 0 {
				t.Errorf("%s: %s.%s has no example", filepath.ToSlash(dir), p.Name, f.Name)
			}
		}
	}
	if functions < 80 {
		t.Errorf("there are %d functions in all; has the test lost them?", functions)
	}
}

var notForUsers = []string{"internal", "testdata", "examples", "bench", "tools", "docs", "node_modules", "bin", "lifecyclepb"}
