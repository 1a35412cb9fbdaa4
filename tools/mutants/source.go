package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// sources reads the packages of a repository, each at most once. Its methods may be called
// concurrently.
type sources struct {
	root string
	mu   sync.Mutex
	read map[string]func() (*source, error) // source of each folder, read at most once
}

// A source is the code of one package: all of its files, whatever their build constraints.
type source struct {
	files map[string][]codeLine
	decls map[string][]region // the declarations that an entry can name, by that name, such as "func (*T).Name"
	tests map[string][]string // the string literals in each test, by name of the test; see addTests
}

// A codeLine is a line of a file. code is the part of the line that the compiler reads: without
// comments, and with one space for each run of spaces and tabs. If the line has only a comment,
// code is "".
type codeLine struct{ text, code string }

// A region is a range of the lines of a source: files[file][from:to].
type region struct {
	file     string
	from, to int
}

func newSources(root string) *sources {
	return &sources{root: root, read: map[string]func() (*source, error){}}
}

// pkg returns the code of the package in a folder, which is relative to the root.
func (s *sources) pkg(dir string) (*source, error) {
	s.mu.Lock()
	read := s.read[dir]
	if read == nil {
		read = sync.OnceValues(func() (*source, error) { return readSource(filepath.Join(s.root, dir)) })
		s.read[dir] = read
	}
	s.mu.Unlock()
	return read()
}

func readSource(dir string) (*source, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	src := &source{files: map[string][]codeLine{}, decls: map[string][]region{}, tests: map[string][]string{}}
	for _, f := range files {
		name := f.Name()
		if !strings.HasSuffix(name, ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(name, "_test.go") {
			src.addTests(parsed)
			continue
		}
		src.files[name] = codeLines(string(text), true)
		src.addDecls(fset, name, parsed)
	}
	return src, nil
}

// addDecls adds the declarations of a file, each with its doc comment, which may hold directives.
func (src *source) addDecls(fset *token.FileSet, name string, file *ast.File) {
	add := func(place string, doc *ast.CommentGroup, n ast.Node) {
		from := n.Pos()
		if doc != nil {
			from = doc.Pos()
		}
		r := region{name, fset.Position(from).Line - 1, fset.Position(n.End()).Line}
		src.decls[place] = append(src.decls[place], r)
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			add(funcPlace(d), d.Doc, d)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				doc, node := d.Doc, ast.Node(d)
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if d.Lparen.IsValid() {
						doc, node = spec.Doc, spec
					}
					add("type "+spec.Name.Name, doc, node)
				case *ast.ValueSpec:
					if d.Lparen.IsValid() {
						doc, node = spec.Doc, spec
					}
					for _, name := range spec.Names {
						add(d.Tok.String()+" "+name.Name, doc, node)
					}
				}
			}
		}
	}
}

// funcPlace returns "func Name", "func T.Name" or "func (*T).Name", without type parameters.
func funcPlace(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return "func " + f.Name.Name
	}
	t, format := f.Recv.List[0].Type, "func %s.%s"
	if star, ok := t.(*ast.StarExpr); ok {
		t, format = star.X, "func (*%s).%s"
	}
	switch generic := t.(type) {
	case *ast.IndexExpr:
		t = generic.X
	case *ast.IndexListExpr:
		t = generic.X
	}
	name, _ := t.(*ast.Ident)
	return fmt.Sprintf(format, name, f.Name.Name)
}

// regions returns the parts of files that a place names, such as all methods (*T).Name of a package
// that declares one for each operating system.
func (s *sources) regions(dir, place string) (*source, []region, error) {
	src, err := s.pkg(dir)
	if err != nil {
		return nil, nil, err
	}
	file, isFile := strings.CutPrefix(place, "file ")
	switch {
	case !isFile && src.decls[place] == nil:
		return nil, nil, fmt.Errorf("./%s has no %s; if it was renamed, use the new name; if it was moved, move the entry to the table of the other package", filepath.ToSlash(dir), place)
	case !isFile:
		return src, src.decls[place], nil
	case strings.HasSuffix(file, "_test.go"):
		return nil, nil, fmt.Errorf("%s is a test file; a mutant must change the code under test, not the test", file)
	case src.files[file] == nil: // the file is not a Go file
		text, err := os.ReadFile(filepath.Join(s.root, dir, file))
		if err != nil {
			return nil, nil, err
		}
		src = &source{files: map[string][]codeLine{file: codeLines(string(text), false)}}
	}
	return src, []region{{file, 0, len(src.files[file])}}, nil
}

// A replacement is an edit whose old text has been found: its region, and the new lines.
type replacement struct {
	region
	new []string
}

// find finds the one place where the old text of an edit is.
func (s *sources) find(dir string, e edit) (*source, replacement, error) {
	src, regions, err := s.regions(dir, e.place)
	if err != nil {
		return nil, replacement{}, err
	}
	var found []replacement
	for _, r := range regions {
		for at := r.from; at < r.to; at++ {
			if new, n, ok := e.replace(src.files[r.file][at:r.to]); ok {
				found = append(found, replacement{region{r.file, at, at + n}, new})
			}
		}
	}
	switch len(found) {
	case 1:
		return src, found[0], nil
	case 0:
		return nil, replacement{}, fmt.Errorf("%s does not contain these lines; copy the lines from the present code, or delete the entry if the code that it breaks is gone:%s",
			e.place, e.old())
	}
	return nil, replacement{}, fmt.Errorf("%s contains these lines %d times; add a line from before or after them:%s",
		e.place, len(found), e.old())
}

// If the first n lines are the old text of the edit, replace returns the new text for them.
// Comments, empty lines, alignment and the depth of the indentation make no difference. The
// comments above a removed line are removed with it.
func (e edit) replace(lines []codeLine) (new []string, n int, ok bool) {
	at := make([]int, len(e.lines))
	shift := 0 // by how many tabs the code is indented more than the edit
	for i, l := range e.lines {
		if l.mark == '+' || l.code == "" {
			continue
		}
		for n > 0 && n < len(lines) && lines[n].code == "" {
			n++
		}
		if n == len(lines) || lines[n].code != l.code && strings.TrimSpace(lines[n].text) != strings.TrimSpace(l.text) {
			return nil, 0, false
		}
		if n == 0 {
			shift = tabs(lines[0].text) - tabs(l.text)
		}
		at[i] = n
		n++
	}
	next := 0
	for i, l := range e.lines {
		switch {
		case l.mark == '+':
			new = append(new, indent(l.text, shift))
		case l.code == "":
		case l.mark == '-':
			next = at[i] + 1
		default:
			for ; next <= at[i]; next++ {
				new = append(new, lines[next].text)
			}
		}
	}
	return new, n, n > 0
}

func tabs(line string) int { return len(line) - len(strings.TrimLeft(line, "\t")) }

// indent returns a line indented by shift more tabs, or fewer if shift is negative.
func indent(line string, shift int) string {
	if shift > 0 && line != "" {
		return strings.Repeat("\t", shift) + line
	}
	for ; shift < 0; shift++ {
		line = strings.TrimPrefix(line, "\t")
	}
	return line
}

// codeLines splits a text into lines. In Go, the code of a line is the line without its comments.
// In any other text it is the whole line.
func codeLines(text string, isGo bool) []codeLine {
	code := []byte(text)
	if isGo {
		var s scanner.Scanner
		file := token.NewFileSet().AddFile("", -1, len(code))
		s.Init(file, []byte(text), func(token.Position, string) {}, scanner.ScanComments)
		for pos, tok, comment := s.Scan(); tok != token.EOF; pos, tok, comment = s.Scan() {
			if tok != token.COMMENT || strings.HasPrefix(comment, "//go:") { // a directive such as //go:build counts as code
				continue
			}
			for i := range len(comment) {
				if at := file.Offset(pos) + i; code[at] != '\n' {
					code[at] = ' '
				}
			}
		}
	}
	texts, codes := strings.Split(text, "\n"), strings.Split(string(code), "\n")
	lines := make([]codeLine, len(texts))
	for i := range lines {
		lines[i] = codeLine{texts[i], strings.Join(strings.Fields(codes[i]), " ")}
	}
	return lines
}

// apply returns the text of the files that a mutant changes, by name relative to the root.
func (s *sources) apply(m *mutant) (map[string][]byte, error) {
	lines, byFile := map[string][]codeLine{}, map[string][]replacement{}
	var errs []error
	for _, e := range m.edits {
		src, r, err := s.find(m.dir, e)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.where(e.line), err))
			continue
		}
		for _, other := range byFile[r.file] {
			if r.from < other.to && other.from < r.to {
				errs = append(errs, fmt.Errorf("%s: two edits change the same lines of %s; make them one", m.where(e.line), e.place))
			}
		}
		lines[r.file], byFile[r.file] = src.files[r.file], append(byFile[r.file], r)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	texts := map[string][]byte{}
	for file, replacements := range byFile {
		slices.SortFunc(replacements, func(a, b replacement) int { return b.from - a.from })
		var text []string
		for _, l := range lines[file] {
			text = append(text, l.text)
		}
		for _, r := range replacements { // from the last to the first, so that the line numbers of the remaining replacements stay right
			text = slices.Replace(text, r.from, r.to, r.new...)
		}
		texts[filepath.Join(m.dir, file)] = []byte(strings.Join(text, "\n"))
	}
	return texts, nil
}

// writeOverlay writes the files that a mutant changes into a folder, and beside it a file of the
// same name with .json, for `go test -overlay`.
func (s *sources) writeOverlay(m *mutant, dir string) error {
	texts, err := s.apply(m)
	if err != nil {
		return err
	}
	replace := map[string]string{}
	for file, text := range texts {
		to := filepath.Join(dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, text, 0o644)); err != nil {
			return err
		}
		replace[filepath.Join(s.root, file)] = to
		m.files = append(m.files, file)
	}
	slices.Sort(m.files)
	m.overlay = dir
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	return os.WriteFile(dir+".json", append(bytes.TrimSpace(text), '\n'), 0o644)
}
