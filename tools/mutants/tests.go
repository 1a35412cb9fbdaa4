package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// addTests adds the top-level tests, examples and fuzz tests of a file by name, each with the
// string literals in it. The literals outside of all tests, such as those of helpers, are added
// under "". Literals are written as in the names of subtests.
func (src *source) addTests(file *ast.File) {
	for _, d := range file.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.IMPORT {
			continue
		}
		test := ""
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
			for _, prefix := range []string{"Test", "Example", "Fuzz"} {
				if strings.HasPrefix(f.Name.Name, prefix) {
					test = f.Name.Name
				}
			}
		}
		literals := src.tests[test]
		ast.Inspect(d, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				text, _ := strconv.Unquote(l.Value) // no error, because the parser has checked the literal
				literals = append(literals, subtestName(text))
			}
			return true
		})
		src.tests[test] = literals
	}
}

// subtestName returns a name as [testing.T.Run] writes it, except for characters that cannot be
// printed.
func subtestName(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return '_'
		}
		return r
	}, name)
}

// checkTest checks that the package that a mutant names has the test: every alternative of the
// regular expression, up to its first slash, must match a test. It also checks that subtests can
// exist: a string literal of these tests, or one outside of all tests, must match each further part
// of the expression.
func (s *sources) checkTest(m *mutant) error {
	src, err := s.pkg(filepath.FromSlash(strings.TrimPrefix(m.pkg, "./")))
	if err != nil {
		return err
	}
	top, subtests, _ := strings.Cut(m.run, "/")
	alternatives := []string{top}
	if !strings.Contains(top, "(") {
		alternatives = strings.Split(top, "|")
	}
	literals := src.tests[""]
	for _, a := range alternatives {
		re, err := regexp.Compile(a)
		if err != nil {
			return fmt.Errorf("test %s: %w", m.run, err)
		}
		found := false
		for test, texts := range src.tests {
			if test != "" && re.MatchString(test) {
				found, literals = true, append(slices.Clip(literals), texts...)
			}
		}
		if !found {
			return fmt.Errorf("%s has no test that matches %s; if the test was renamed, use the new name", m.pkg, a)
		}
	}
	for part := range strings.SplitSeq(subtests, "/") {
		re, err := regexp.Compile(subtestName(part))
		if err != nil {
			return fmt.Errorf("test %s: %w", m.run, err)
		}
		if part != "" && !slices.ContainsFunc(literals, re.MatchString) {
			return fmt.Errorf("%s %s has no subtest that matches %s: no string literal in the test, or outside of all tests, matches it; if the subtest was renamed, use the new name; if the test computes its name, write the name as a literal",
				m.pkg, top, part)
		}
	}
	return nil
}
