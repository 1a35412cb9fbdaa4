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

// TestExamples_CoverExportedNames checks that every exported function, type and method has an
// example, and that every example has an output, so that go test runs it.
//
//   - A function has an example of its own.
//   - A type has an example: its own, that of a function which returns it, or that of one of its
//     methods. Or the examples of its package use the type or one of its constants.
//   - A method has an example of its own, or an example of its type or package calls it. Calls are
//     compared by name and not by type, because the test reads source code only. So it needs no
//     module but the root's.
func TestExamples_CoverExportedNames(t *testing.T) {
	packages := map[string][]string{} // for each directory, its Go files
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
			continue // the folder contains only test files, or a program
		}
		pkg, _ := filepath.Rel("..", dir)
		isExempt := func(name string) bool {
			for _, key := range []string{filepath.ToSlash(pkg) + "." + name, name[strings.LastIndex(name, ".")+1:]} {
				if exempt[key] != "" {
					used[key] = true
					return true
				}
			}
			return false
		}
		checkRun := func(all []*doc.Example) {
			for _, e := range all {
				startsGopls := slices.ContainsFunc(e.Comments, func(c *ast.CommentGroup) bool { return strings.HasPrefix(c.Text(), "Prints:") })
				// TestExamples_PrintExpectedOutput of lspconn runs these examples and checks their
				// output.
				if pkg == "lspconn" && startsGopls {
					continue
				}
				if e.Output == "" && !e.EmptyOutput && !isExempt("Example"+e.Name) {
					t.Errorf("%s: Example%s has no output comment, so go test compiles it and never runs it", pkg, e.Name)
				}
			}
		}
		checkFunc := func(f *doc.Func) {
			functions++
			checkRun(f.Examples)
			if len(f.Examples) == 0 && !isExempt(f.Name) {
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
			if len(of) == 0 && !slices.ContainsFunc(namesOf(typ), func(name string) bool { return mentioned[name] }) && !isExempt(typ.Name) {
				t.Errorf("%s: the type %s has no example, and no other example uses it", pkg, typ.Name)
			}
			called := map[string]bool{}
			for _, e := range append(of, p.Examples...) {
				for name := range selected([]ast.Node{e.Code}, "") {
					called[name] = true
				}
			}
			for _, m := range typ.Methods {
				methods++
				if len(m.Examples) == 0 && !called[m.Name] && !isExempt(typ.Name+"."+m.Name) {
					t.Errorf("%s: no example of %s calls its method %s", pkg, typ.Name, m.Name)
				}
			}
		}
	}
	for key := range exempt {
		if !used[key] {
			t.Errorf("%s is exempt from having an example, but needs no exemption; remove it from the list", key)
		}
	}
	if functions < 80 || types < 120 || methods < 180 {
		t.Errorf("only %d functions, %d types and %d methods are found in the whole repository; does the test look in the wrong place?", functions, types, methods)
	}
}

// namesOf returns the name of a type and the names of its constants.
func namesOf(typ *doc.Type) []string {
	names := []string{typ.Name}
	for _, c := range typ.Consts {
		names = append(names, c.Names...)
	}
	return names
}

// selected returns the names that the code selects from x, such as Name in x.Name. If x is empty,
// it returns those that the code selects from any expression.
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

// exempt contains what needs no example, and why not: names of methods, for every type that has
// such a method, and types and examples, each with the name of its package.
var exempt = map[string]string{
	"Error":       "printing the error calls it",
	"Unwrap":      "errors.Is and errors.As call it",
	"String":      "package fmt calls it",
	"LogValue":    "package slog calls it",
	"MarshalText": "package json calls it",

	"launcher.Outcome":     "an alias; examples use its constants, such as launcher.Clean",
	"launcher.GroupSource": "a config.Config is one; ExampleConfig_WithGroup is there",

	"launcher.ServeUpgrades": "it does not return on the main thread; its doc comment says how main calls it",

	"shutdowntest.ExampleRun":    "it needs a testing.T; TestExamples_CoverExportedNames of that package runs it",
	"shutdowntest.ExampleWithin": "it needs a testing.T; TestExamples_CoverExportedNames of that package runs it",
}

func init() {
	for _, name := range []string{"Export", "Metrics"} {
		exempt["launcher/config."+name] = "part of the configuration file, which is written in YAML; docs/reference/launcher.md shows it"
	}
}
