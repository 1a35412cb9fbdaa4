// Limits lists Go files and functions that are too long or too complex to read in one go, and lines
// of comment and of Markdown that are too long.
//
// A file may have 400 lines, a function 80 lines and a cyclomatic complexity of 20. A function
// that exceeds a limit needs a reason in its doc comment, in a sentence that contains
// "is long because". For a file, that sentence is above the package clause. Tests and generated
// code have none of these limits.
//
// A line of comment ends at column 100, where a tab counts as four columns. Preformatted text in a
// comment, comments after code, and the output of examples may be longer.
//
// A line of Markdown ends at column 120. Tables, code blocks and lines without a space, such as a
// link, may be longer, and so may the lines of pages that a program has written.
//
//	go run ./tools/limits [folder]
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	maxFileLines  = 400
	maxFuncLines  = 80
	maxComplexity = 20
	maxColumn     = 100
	maxMarkdown   = 120
	tabWidth      = 4
	marker        = "is long because "
)

func main() {
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	excesses := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() {
			if path != root && (name[0] == '.' || slices.Contains([]string{"testdata", "bin", "node_modules"}, name)) {
				return filepath.SkipDir
			}
			return nil
		}
		var found []string
		switch filepath.Ext(path) {
		case ".go":
			found, err = check(path)
		case ".md":
			found, err = checkMarkdown(path)
		}
		for _, line := range found {
			fmt.Println(line)
		}
		excesses += len(found)
		return err
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "limits:", err)
		os.Exit(2)
	}
	if excesses > 0 {
		fmt.Printf("limits: %d too long or too complex; wrap comments and Markdown; split code, or say why not in a doc comment: %q\n", excesses, marker+"it …")
		os.Exit(1)
	}
}

// check returns a line of text for each limit that a file, or one of its functions, exceeds.
func check(path string) (found []string, err error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(file) {
		return nil, err
	}
	if found, err = checkComments(path); err != nil || strings.HasSuffix(path, "_test.go") {
		return found, err
	}
	line := func(pos token.Pos) int { return fset.Position(pos).Line }
	explained := slices.ContainsFunc(file.Comments, func(c *ast.CommentGroup) bool {
		return c.Pos() < file.Package && strings.Contains(c.Text(), marker)
	})
	if n := line(file.FileEnd); n > maxFileLines && !explained {
		found = append(found, fmt.Sprintf("%s: %d lines, the limit is %d", path, n, maxFileLines))
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || strings.Contains(f.Doc.Text(), marker) {
			continue
		}
		if n := line(f.End()) - line(f.Pos()) + 1; n > maxFuncLines {
			found = append(found, fmt.Sprintf("%s:%d: %s: %d lines, the limit is %d", path, line(f.Pos()), f.Name.Name, n, maxFuncLines))
		}
		if n := complexity(f); n > maxComplexity {
			found = append(found, fmt.Sprintf("%s:%d: %s: cyclomatic complexity %d, the limit is %d", path, line(f.Pos()), f.Name.Name, n, maxComplexity))
		}
	}
	return found, nil
}

// checkComments returns a line of text for each line of comment in a file that is too long.
func checkComments(path string) (found []string, err error) {
	text, err := os.ReadFile(path)
	if err != nil || strings.HasPrefix(filepath.Base(path), "example") {
		return nil, err
	}
	for i, line := range strings.Split(string(text), "\n") {
		comment := strings.TrimLeft(line, "\t")
		end := tabWidth*(len(line)-len(comment)) + utf8.RuneCountInString(comment)
		if strings.HasPrefix(comment, "// ") && end > maxColumn {
			found = append(found, fmt.Sprintf("%s:%d: the comment ends at column %d, the limit is %d", path, i+1, end, maxColumn))
		}
	}
	return found, nil
}

// checkMarkdown returns a line of text for each line of a Markdown file that is too long.
func checkMarkdown(path string) (found []string, err error) {
	text, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(text), "; do not edit.") {
		return nil, err
	}
	inCode := false
	for i, line := range strings.Split(string(text), "\n") {
		words := strings.TrimLeft(line, " -")
		if strings.HasPrefix(words, "```") {
			inCode = !inCode
		}
		exempt := inCode || strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "|") || !strings.Contains(words, " ")
		if end := utf8.RuneCountInString(line); end > maxMarkdown && !exempt {
			found = append(found, fmt.Sprintf("%s:%d: the line ends at column %d, the limit is %d", path, i+1, end, maxMarkdown))
		}
	}
	return found, nil
}

// complexity counts the branches of a function, as gocyclo does: one, and one more for each if,
// for, case, && and ||.
func complexity(f *ast.FuncDecl) int {
	n := 1
	ast.Inspect(f, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			n += min(1, len(node.List)) // a default clause has no list and does not count
		case *ast.CommClause:
			if node.Comm != nil {
				n++
			}
		case *ast.BinaryExpr:
			if node.Op == token.LAND || node.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}
