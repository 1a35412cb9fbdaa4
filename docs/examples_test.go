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

// What users can call has an example, and every example says what it prints, so that it is run.
//
//   - A function has one of its own.
//   - A type has one, of its own or of what makes it or of one of its methods; or is used by name, itself or by one of its
//     constants, in the examples of its package.
//   - A method has one of its own, or is called in one of its type's or of its package. Calls are compared by name, without
//     types: this looks at source code alone, so that it takes no module but the root's.
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
	functions, types, methods := 0, 0, 0
	used := map[string]bool{}
	for dir, files := range packages {
		set := token.NewFileSet()
		var parsed, examples []*ast.File
		for _, name := range files {
			f, err := parser.ParseFile(set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			parsed = append(parsed, f)
			if base := filepath.Base(name); strings.HasPrefix(base, "example_") && strings.HasSuffix(base, "_test.go") {
				examples = append(examples, f)
			}
		}
		p, err := doc.NewFromFiles(set, parsed, "example.test/"+filepath.ToSlash(dir))
		if err != nil || p.Name == "main" {
			continue // tests alone, or a program
		}
		pkg, _ := filepath.Rel("..", dir)
		excused := func(name string) bool {
			for _, key := range []string{filepath.ToSlash(pkg) + "." + name, name[strings.LastIndex(name, ".")+1:]} {
				if excuses[key] != "" {
					used[key] = true
					return true
				}
			}
			return false
		}
		checkRun := func(all []*doc.Example) {
			for _, e := range all {
				if e.Output == "" && !e.EmptyOutput && !excused("Example"+e.Name) {
					t.Errorf("%s: Example%s has no output, so it is compiled and never run", pkg, e.Name)
				}
			}
		}
		checkFunc := func(f *doc.Func) {
			functions++
			checkRun(f.Examples)
			if len(f.Examples) == 0 {
				t.Errorf("%s: %s.%s has no example", pkg, p.Name, f.Name)
			}
		}
		checkRun(p.Examples)
		for _, f := range p.Funcs {
			checkFunc(f)
		}
		mentioned := selected(examples, p.Name)
		for _, typ := range p.Types {
			of := slices.Clone(typ.Examples)
			for _, f := range typ.Funcs {
				checkFunc(f)
				of = append(of, f.Examples...)
			}
			for _, m := range typ.Methods {
				checkRun(m.Examples)
				of = append(of, m.Examples...)
			}
			checkRun(typ.Examples)
			types++
			if len(of) == 0 && !slices.ContainsFunc(namesOf(typ), func(name string) bool { return mentioned[name] }) && !excused(typ.Name) {
				t.Errorf("%s: the type %s has no example, and those of others do not use it", pkg, typ.Name)
			}
			called := map[string]bool{}
			for _, e := range append(of, p.Examples...) {
				for name := range selected([]ast.Node{e.Code}, "") {
					called[name] = true
				}
			}
			for _, m := range typ.Methods {
				methods++
				if len(m.Examples) == 0 && !called[m.Name] && !excused(typ.Name+"."+m.Name) {
					t.Errorf("%s: no example of %s calls its method %s", pkg, typ.Name, m.Name)
				}
			}
		}
	}
	for key := range excuses {
		if !used[key] {
			t.Errorf("%s is excused, and needs no excuse", key)
		}
	}
	if functions < 80 || types < 120 || methods < 180 {
		t.Errorf("there are %d functions, %d types and %d methods in all; has the test lost them?", functions, types, methods)
	}
}

// namesOf returns the name of a type, and those of the constants that belong to it.
func namesOf(typ *doc.Type) []string {
	names := []string{typ.Name}
	for _, c := range typ.Consts {
		names = append(names, c.Names...)
	}
	return names
}

// selected returns the names that are selected from x, of anything if x is empty.
func selected[N ast.Node](nodes []N, x string) map[string]bool {
	found := map[string]bool{}
	for _, n := range nodes {
		ast.Inspect(n, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if id, ok := s.X.(*ast.Ident); x == "" || ok && id.Name == x {
					found[s.Sel.Name] = true
				}
			}
			return true
		})
	}
	return found
}

var notForUsers = []string{"internal", "testdata", "examples", "bench", "tools", "docs", "node_modules", "bin", "lifecyclepb"}

// excuses says what needs no example, and why: methods of any type, and, by their packages, types and examples that are not run.
var excuses = map[string]string{
	"Error":       "what prints the error calls it",
	"Unwrap":      "errors.Is and errors.As call it",
	"String":      "package fmt calls it",
	"LogValue":    "package slog calls it",
	"MarshalText": "package json calls it",

	"launcher.GroupSource": "a config.Config is one; ExampleConfig_WithGroup is there",

	"shutdowntest.ExampleRun":    "it takes a testing.T; the package's TestExamples runs it",
	"shutdowntest.ExampleWithin": "it takes a testing.T; the package's TestExamples runs it",
}

func init() {
	for _, name := range strings.Fields(`Admin Canary Export Grace Hook LauncherDeath Lifecycle Listener Liveness Logs Metrics Network
		OnFailure Protocol Restart RestartPolicy Retry RetryPolicy Shutdown Signal TLS Transport`) {
		excuses["launcher/config."+name] = "a part of the file: it is written in YAML, which docs/launcher.md shows"
	}
}
