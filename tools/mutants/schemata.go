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
// bodies of functions are therefore built together: each of these functions gets the bodies of all
// its mutants, and an environment variable selects one of them. These are the mutant schemata of
// Untch, Offutt and Harrold (Mutation Analysis Using Mutant Schemata, ISSTA 1993).
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

// A newBody replaces the body of a function.
type newBody struct {
	at       int    // offset of the original body, after its opening brace
	text     string // text of the replacement body between its braces
	noResult bool   // the function has no results, so control may reach the end of the body
}

// buildShared writes an overlay with all mutants that can be in the same test program, and marks
// these mutants as shared.
func (r *runner) buildShared(mutants []*mutant) {
	changes := map[*mutant]map[string][]newBody{}
	for _, m := range mutants {
		if m.decided == nil {
			if c, ok := r.newBodies(m); ok {
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
		maps.DeleteFunc(changes, func(m *mutant, _ map[string][]newBody) bool { return faulty[m.name] })
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

// newBodies returns, by file, the bodies that a mutant replaces. ok is false if the mutant also
// changes something else.
func (r *runner) newBodies(m *mutant) (changes map[string][]newBody, ok bool) {
	changes = map[string][]newBody{}
	for _, file := range m.files {
		before, err := os.ReadFile(filepath.Join(r.root, file))
		after, err2 := os.ReadFile(filepath.Join(m.overlay, file))
		if err != nil || err2 != nil || filepath.Ext(file) != ".go" {
			return nil, false
		}
		bodies, ok := diffBodies(string(before), string(after))
		if !ok {
			return nil, false
		}
		changes[file] = bodies
	}
	return changes, true
}

// diffBodies returns the function bodies in which two versions of a file differ. ok is false if the
// versions also differ elsewhere.
func diffBodies(before, after string) (bodies []newBody, ok bool) {
	files := token.NewFileSet()
	old, err := parser.ParseFile(files, "", before, parser.ParseComments|parser.SkipObjectResolution)
	now, err2 := parser.ParseFile(files, "", after, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || err2 != nil || len(old.Decls) != len(now.Decls) {
		return nil, false
	}
	text := func(in string, file *ast.File, from, to token.Pos) string {
		return in[from-file.FileStart : to-file.FileStart]
	}
	// gap returns the text between a declaration and the declaration before it, which can contain
	// directives. Before the first declaration it can contain build constraints.
	gap := func(in string, file *ast.File, i int) string {
		from := file.FileStart
		if i > 0 {
			from = file.Decls[i-1].End()
		}
		return text(in, file, from, file.Decls[i].Pos())
	}
	for i := range old.Decls {
		if gap(before, old, i) != gap(after, now, i) {
			return nil, false
		}
		from, to := old.Decls[i], now.Decls[i]
		if text(before, old, from.Pos(), from.End()) == text(after, now, to.Pos(), to.End()) {
			continue
		}
		f, ok := from.(*ast.FuncDecl)
		g, ok2 := to.(*ast.FuncDecl)
		if !ok || !ok2 || f.Body == nil || g.Body == nil || !nestable(g) ||
			text(before, old, f.Pos(), f.Body.Lbrace) != text(after, now, g.Pos(), g.Body.Lbrace) {
			return nil, false
		}
		bodies = append(bodies, newBody{
			at:       int(f.Body.Lbrace-old.FileStart) + 1,
			text:     text(after, now, g.Body.Lbrace+1, g.Body.Rbrace),
			noResult: g.Type.Results == nil,
		})
	}
	return bodies, true
}

// writeShared writes the shared overlay, and returns the folders of the packages that it changes.
func (r *runner) writeShared(changes map[*mutant]map[string][]newBody) (dirs []string, err error) {
	type choice struct {
		newBody
		m *mutant
	}
	files, users, ids := map[string][]choice{}, map[string][]*mutant{}, map[*mutant]int{}
	for _, m := range slices.SortedFunc(maps.Keys(changes), func(a, b *mutant) int { return cmp.Compare(a.name, b.name) }) {
		ids[m] = len(ids)
		for file, bodies := range changes[m] {
			for _, b := range bodies {
				files[file] = append(files[file], choice{b, m})
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
			fmt.Fprintf(&out, "if mutant%d {/*line %s.mutant:1:1*/%s", ids[c.m], c.m.name, c.text)
			if c.noResult {
				out.WriteString("\nreturn")
			}
			out.WriteString("};")
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
