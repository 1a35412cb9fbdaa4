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

// addTests adds the top-level tests, examples and fuzz tests of a file to src.tests. The key is the
// name of the test, the value the string literals in it. The key of the literals outside of all
// tests, such as those in helpers, is "". Literals are written as package testing writes names of
// subtests, for example with an underscore for a space.
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

// checkTest checks that the package of a mutant has the tests that the mutant's regular expression
// names. Every alternative of the part before the first slash must match the name of a test.
//
// The parts after a slash name subtests, and the names of subtests are known only when the tests
// run. So checkTest requires only that each of these parts matches a string literal in one of the
// tests, or outside of all tests.
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
			return fmt.Errorf("%s %s has no subtest that matches %s: no string literal in the test, or outside of all tests, matches it; if the subtest was renamed, use the new name; if the name of the subtest is computed, write it as a literal",
				m.pkg, top, part)
		}
	}
	return nil
}
