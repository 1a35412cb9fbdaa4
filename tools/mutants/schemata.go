package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
)

// Building a test program takes much longer than running most tests. Mutants that change only the
// bodies of functions, and the initial values of package-level variables, are therefore built
// together: each of these functions gets the bodies of all its mutants, each of these variables the
// values, and an environment variable selects a mutant. These are the mutant schemata of Untch,
// Offutt and Harrold (Mutation Analysis Using Mutant Schemata, ISSTA 1993).
//
// A package has one shared program for each set of compiler flags, such as -race, that its mutants
// have.
//
// The shared program differs from the real one: a larger function may no longer be inlined. So the
// named test must pass in the shared program while no mutant is selected. A mutant that is not
// killed in the shared program is run again alone.
const (
	variable = "SWANSONG_MUTANT"
	// noMutant is the value of the variable while no mutant is selected. The variable is always
	// set, so that a test that counts or lists its environment variables has the same result in
	// each run.
	noMutant = "-"
)

// A code replaces the body of a function, or the initial value of a package-level variable.
type code struct {
	at   int    // offset of the original body, after its opening brace; the end of the file for a value
	text string // the new text of the body between its braces, or of the value
	// before and after are written around the text, so that together they are statements that do
	// what the original code would do with the new text.
	before, after string
	isValue       bool
}

// buildShared writes an overlay with all mutants that can be in the same test program, and marks
// these mutants as shared.
func (r *runner) buildShared(mutants []*mutant) {
	changes := map[*mutant]map[string][]code{}
	for _, m := range mutants {
		if m.decided == nil {
			if c, ok := r.newCode(m); ok {
				changes[m] = c
			}
		}
	}
	for len(changes) > 0 {
		dirs, err := r.writeShared(changes)
		if err != nil {
			fmt.Fprintf(r.out, "mutants: cannot write the shared overlay, so all mutants are built alone: %v\n", err)
			return
		}
		cmd := exec.CommandContext(r.ctx, "go", append([]string{"list", "-export", "-overlay=" + r.sharedOverlay()}, dirs...)...)
		cmd.Dir = r.root
		out, err := cmd.CombinedOutput()
		if err == nil {
			break
		}
		// Mutants with compiler errors are left out; they are built alone, which reports the error.
		faulty := map[string]bool{}
		for _, name := range regexp.MustCompile(`([^/\\\n]+)\.mutant:\d+`).FindAllSubmatch(out, -1) {
			faulty[string(name[1])] = true
		}
		before := len(changes)
		maps.DeleteFunc(changes, func(m *mutant, _ map[string][]code) bool { return faulty[m.name] })
		if len(changes) == before {
			fmt.Fprintf(r.out, "mutants: the shared overlay does not build, so all mutants are built alone:\n%s", out)
			return
		}
	}
	for m := range changes {
		m.shared = true
	}
}

// sharedOverlay returns the name of the file that describes the shared overlay to the go command.
func (r *runner) sharedOverlay() string { return filepath.Join(r.temp, "shared.json") }

// newCode returns, by file, the code that a mutant replaces. ok is false if the mutant also changes
// something else.
func (r *runner) newCode(m *mutant) (changes map[string][]code, ok bool) {
	changes = map[string][]code{}
	for _, file := range m.files {
		before, err := os.ReadFile(filepath.Join(r.root, file))
		after, err2 := os.ReadFile(filepath.Join(m.overlay, file))
		if err != nil || err2 != nil || filepath.Ext(file) != ".go" {
			return nil, false
		}
		codes, ok := diff(string(before), string(after))
		if !ok {
			return nil, false
		}
		changes[file] = codes
	}
	return changes, true
}

// diff returns the bodies and the values in which two versions of a file differ. ok is false if the
// versions also differ elsewhere.
func diff(before, after string) (codes []code, ok bool) {
	old, err := parse(before)
	now, err2 := parse(after)
	if err != nil || err2 != nil || len(old.Decls) != len(now.Decls) {
		return nil, false
	}
	// between returns the text between a declaration and the declaration before it, which can
	// contain directives. Before the first declaration it can contain build constraints.
	between := func(p parsed, i int) string {
		from := p.FileStart
		if i > 0 {
			from = p.Decls[i-1].End()
		}
		return p.slice(from, p.Decls[i].Pos())
	}
	for i := range old.Decls {
		if between(old, i) != between(now, i) {
			return nil, false
		}
		from, to := old.Decls[i], now.Decls[i]
		if old.slice(from.Pos(), from.End()) == now.slice(to.Pos(), to.End()) {
			continue
		}
		var c code
		switch from := from.(type) {
		case *ast.FuncDecl:
			c, ok = diffBody(old, now, from, to)
		case *ast.GenDecl:
			c, ok = diffValue(old, now, from, to)
		}
		if !ok {
			return nil, false
		}
		codes = append(codes, c)
	}
	return codes, true
}

// A parsed is a parsed file with its text.
type parsed struct {
	*ast.File
	text string
}

func parse(text string) (parsed, error) {
	file, err := parser.ParseFile(token.NewFileSet(), "", text, parser.ParseComments|parser.SkipObjectResolution)
	return parsed{file, text}, err
}

// slice returns the text between two positions.
func (p parsed) slice(from, to token.Pos) string { return p.text[from-p.FileStart : to-p.FileStart] }

// diffBody returns the new body of a function. ok is false if the declarations differ elsewhere.
func diffBody(old, now parsed, f *ast.FuncDecl, to ast.Decl) (c code, ok bool) {
	g, ok := to.(*ast.FuncDecl)
	if !ok || f.Body == nil || g.Body == nil || old.slice(f.Pos(), f.Body.Lbrace) != now.slice(g.Pos(), g.Body.Lbrace) {
		return code{}, false
	}
	c = code{at: int(f.Body.Lbrace-old.FileStart) + 1, text: now.slice(g.Body.Lbrace+1, g.Body.Rbrace)}
	if !isBlock(g) {
		if readsStack(g.Body) {
			return code{}, false
		}
		c.before, c.after = wrapper(now, g)
	}
	if g.Type.Results == nil {
		c.after += "\nreturn"
	}
	return c, true
}

// diffValue returns an assignment of the new value of a package-level variable. ok is false if the
// declarations differ elsewhere. The shared program assigns the value after it has initialized all
// variables. So a variable that is computed from this one keeps its value: the mutant may survive
// there, and is then run alone.
func diffValue(old, now parsed, d *ast.GenDecl, to ast.Decl) (c code, ok bool) {
	e, ok := to.(*ast.GenDecl)
	if !ok || d.Tok != token.VAR || e.Tok != token.VAR || len(d.Specs) != len(e.Specs) {
		return code{}, false
	}
	for i := range d.Specs {
		v, w := d.Specs[i].(*ast.ValueSpec), e.Specs[i].(*ast.ValueSpec)
		if len(v.Values) != 1 || len(w.Values) != 1 || old.slice(v.Pos(), v.End()) == now.slice(w.Pos(), w.End()) {
			continue
		}
		from, to := v.Values[0], w.Values[0]
		return code{at: len(old.text), text: now.slice(to.Pos(), to.End()), before: w.Names[0].Name + " = ", isValue: true},
			len(w.Names) == 1 && old.slice(d.Pos(), from.Pos()) == now.slice(e.Pos(), to.Pos()) && old.slice(from.End(), d.End()) == now.slice(to.End(), e.End())
	}
	return code{}, false
}

// writeShared writes the shared overlay, and returns the folders of the packages that it changes.
func (r *runner) writeShared(changes map[*mutant]map[string][]code) (dirs []string, err error) {
	type choice struct {
		code
		m *mutant
	}
	files, users, ids := map[string][]choice{}, map[string][]*mutant{}, map[*mutant]int{}
	for _, m := range slices.SortedFunc(maps.Keys(changes), func(a, b *mutant) int { return cmp.Compare(a.name, b.name) }) {
		ids[m] = len(ids)
		for file, codes := range changes[m] {
			for _, c := range codes {
				files[file] = append(files[file], choice{c, m})
			}
			if dir := filepath.Dir(file); !slices.Contains(users[dir], m) {
				users[dir] = append(users[dir], m)
			}
		}
	}
	replace, packages := map[string]string{}, map[string]string{}
	write := func(file string, text []byte) error {
		from, to := filepath.Join(r.root, file), filepath.Join(r.temp, "shared", file)
		replace[from] = to
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.WriteFile(to, text, 0o644)
	}
	for file, choices := range files {
		text, err := os.ReadFile(filepath.Join(r.root, file))
		if err != nil {
			return nil, err
		}
		slices.SortStableFunc(choices, func(a, b choice) int { return cmp.Compare(a.at, b.at) })
		var out bytes.Buffer
		end := 0
		for i, c := range choices {
			out.Write(text[end:c.at])
			end = c.at
			statement := fmt.Sprintf("if mutant%d {/*line %s.mutant:1:1*/%s%s%s};", ids[c.m], c.m.name, c.before, c.text, c.after)
			if c.isValue {
				fmt.Fprintf(&out, "\nfunc init() {%s}\n", statement)
				continue
			}
			out.WriteString(statement)
			// Give the following lines of the original body their own line numbers again.
			if i+1 == len(choices) || choices[i+1].at > end {
				line, column := 1+bytes.Count(text[:end], []byte("\n")), end-bytes.LastIndexByte(text[:end], '\n')
				fmt.Fprintf(&out, "/*line %s:%d:%d*/", filepath.Base(file), line, column)
			}
		}
		out.Write(text[end:])
		if err := write(file, out.Bytes()); err != nil {
			return nil, err
		}
		clause, err := parser.ParseFile(token.NewFileSet(), "", text, parser.PackageClauseOnly)
		if err != nil {
			return nil, err
		}
		packages[filepath.Dir(file)] = clause.Name.Name
	}
	for dir, mutants := range users {
		var out bytes.Buffer
		fmt.Fprintf(&out, "package %s\n\nimport mutantOS \"os\"\n\nvar (\n\tmutantName = mutantOS.Getenv(%q)\n", packages[dir], variable)
		for _, m := range mutants {
			fmt.Fprintf(&out, "\tmutant%d = mutantName == %q\n", ids[m], m.name)
		}
		out.WriteString(")\n")
		if err := write(filepath.Join(dir, "zz_mutant_chosen.go"), out.Bytes()); err != nil {
			return nil, err
		}
		dirs = append(dirs, "./"+filepath.ToSlash(dir))
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, err
	}
	return dirs, os.WriteFile(r.sharedOverlay(), text, 0o644)
}
