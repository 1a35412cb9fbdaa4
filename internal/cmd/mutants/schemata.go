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

// To build a test program takes much longer than to run most tests. So mutants that change nothing but the bodies of
// functions are built together: each such function gets all the bodies that mutants have for it, and an environment
// variable tells the program which of them to use. These are the mutant schemata of Untch, Offutt and Harrold (Mutation
// Analysis Using Mutant Schemata, ISSTA 1993).
//
// Such a program is not quite the code: what could be inlined may have grown too large for it. So the named test has to
// pass in it while no mutant is chosen, and a mutant counts only when it is killed there; otherwise it is tried alone.
const (
	variable = "SWANSONG_MUTANT"
	nobody   = "-" // which is set as well, since there are tests that look at their environment
)

// fewest is how many mutants of a package's tests it takes for a program of their own to be worth its time.
const fewest = 3

// A rebody is another body for a function of a file.
type rebody struct {
	at   int    // offset behind the opening brace
	body string // what is between the braces
	open bool   // the end of the body is the end of the function
}

// together builds an overlay with as many of the mutants as can be in one, and marks them.
func (r *runner) together(mutants []*mutant) {
	count := map[string]int{}
	for _, m := range mutants {
		if m.combines() {
			count[m.pkg]++
		}
	}
	changes := map[*mutant]map[string][]rebody{}
	for _, m := range mutants {
		if m.combines() && count[m.pkg] >= fewest {
			if c, ok := r.changes(m); ok {
				changes[m] = c
			}
		}
	}
	for len(changes) > 0 {
		dirs, err := r.combine(changes)
		if err != nil {
			fmt.Fprintf(r.out, "mutants: all are built alone, since they cannot be put together: %v\n", err)
			return
		}
		cmd := exec.CommandContext(r.ctx, "go", append([]string{"list", "-export", "-overlay=" + r.combined()}, dirs...)...)
		cmd.Dir = r.root
		out, err := cmd.CombinedOutput()
		if err == nil {
			break
		}
		// Those that do not build are told alone, by what the compiler then says.
		culprits := map[string]bool{}
		for _, name := range regexp.MustCompile(`([^/\\\n]+)\.patch:\d+`).FindAllSubmatch(out, -1) {
			culprits[string(name[1])] = true
		}
		before := len(changes)
		maps.DeleteFunc(changes, func(m *mutant, _ map[string][]rebody) bool { return culprits[m.name] })
		if len(changes) == before {
			fmt.Fprintf(r.out, "mutants: all are built alone, since together they do not build:\n%s", out)
			return
		}
	}
	for m := range changes {
		m.together = true
	}
}

// combines tells whether a mutant can share a program as far as its header goes.
func (m *mutant) combines() bool {
	build, _ := m.sorted()
	return m.decided == nil && len(build) == 0
}

// combined is the name of the overlay with all the mutants that can be in one.
func (r *runner) combined() string { return filepath.Join(r.temp, "together.json") }

// changes returns by file which bodies a mutant changes, unless it changes something else.
func (r *runner) changes(m *mutant) (map[string][]rebody, bool) {
	changes := map[string][]rebody{}
	for _, file := range m.files {
		before, err := os.ReadFile(filepath.Join(r.root, file))
		after, err2 := os.ReadFile(filepath.Join(m.overlay, file))
		if err != nil || err2 != nil || filepath.Ext(file) != ".go" {
			return nil, false
		}
		bodies, ok := rebodies(string(before), string(after))
		if !ok {
			return nil, false
		}
		changes[file] = bodies
	}
	return changes, true
}

// rebodies returns the bodies by which a file differs from what it was, unless it differs otherwise.
func rebodies(before, after string) (bodies []rebody, ok bool) {
	files := token.NewFileSet()
	old, err := parser.ParseFile(files, "", before, parser.ParseComments|parser.SkipObjectResolution)
	now, err2 := parser.ParseFile(files, "", after, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || err2 != nil || len(old.Decls) != len(now.Decls) {
		return nil, false
	}
	text := func(in string, file *ast.File, from, to token.Pos) string {
		return in[from-file.FileStart : to-file.FileStart]
	}
	// What is before the first declaration may hold build constraints; a directive before another one goes with it.
	begin := func(in string, file *ast.File, i int) string {
		from := file.FileStart
		if i > 0 {
			from = file.Decls[i-1].End()
		}
		return text(in, file, from, file.Decls[i].Pos())
	}
	for i := range old.Decls {
		if begin(before, old, i) != begin(after, now, i) {
			return nil, false
		}
		from, to := old.Decls[i], now.Decls[i]
		if text(before, old, from.Pos(), from.End()) == text(after, now, to.Pos(), to.End()) {
			continue
		}
		f, ok := from.(*ast.FuncDecl)
		g, ok2 := to.(*ast.FuncDecl)
		if !ok || !ok2 || f.Body == nil || g.Body == nil || !movable(g) ||
			text(before, old, f.Pos(), f.Body.Lbrace) != text(after, now, g.Pos(), g.Body.Lbrace) {
			return nil, false
		}
		bodies = append(bodies, rebody{
			at:   int(f.Body.Lbrace-old.FileStart) + 1,
			body: text(after, now, g.Body.Lbrace+1, g.Body.Rbrace),
			open: g.Type.Results == nil,
		})
	}
	return bodies, true
}

// movable tells whether a function's body means the same in a block of its own, and builds there if and only if it does as it
// is: it declares no parameter's name, by := either, which there would be another variable; it has no label, which would be in
// the function twice; and where there are results, it ends with one, or by a panic, and does not fall through to what follows.
func movable(f *ast.FuncDecl) bool {
	parameters := map[string]bool{}
	for _, list := range []*ast.FieldList{f.Recv, f.Type.Params, f.Type.Results} {
		if list == nil {
			continue
		}
		for _, field := range list.List {
			for _, name := range field.Names {
				parameters[name.Name] = name.Name != "_"
			}
		}
	}
	if f.Type.Results != nil && (len(f.Body.List) == 0 || !ends(f.Body.List[len(f.Body.List)-1])) {
		return false
	}
	for _, s := range f.Body.List {
		var names []ast.Expr
		switch s := s.(type) {
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				names = s.Lhs
			}
		case *ast.DeclStmt:
			for _, spec := range s.Decl.(*ast.GenDecl).Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						names = append(names, name)
					}
				case *ast.TypeSpec:
					names = append(names, spec.Name)
				}
			}
		}
		if slices.ContainsFunc(names, func(e ast.Expr) bool { name, ok := e.(*ast.Ident); return ok && parameters[name.Name] }) {
			return false
		}
	}
	labels := false
	ast.Inspect(f.Body, func(n ast.Node) bool {
		_, label := n.(*ast.LabeledStmt)
		labels = labels || label
		return !labels
	})
	return !labels
}

// ends tells whether nothing that follows a statement is reached, as the compiler sees it. It knows the usual ones.
func ends(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ReturnStmt:
		return true
	case *ast.ExprStmt:
		call, ok := s.X.(*ast.CallExpr)
		if !ok {
			return false
		}
		name, ok := call.Fun.(*ast.Ident)
		return ok && name.Name == "panic"
	}
	return false
}

// combine writes the overlay, and returns the folders that it changes, as the go command wants them.
func (r *runner) combine(changes map[*mutant]map[string][]rebody) (dirs []string, err error) {
	type choice struct {
		rebody
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
		from, to := filepath.Join(r.root, file), filepath.Join(r.temp, "together", file)
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
			fmt.Fprintf(&out, "if mutant%d {/*line %s.patch:1:1*/%s", ids[c.m], c.m.name, c.body)
			if c.open {
				out.WriteString("\nreturn")
			}
			out.WriteString("};")
			if i+1 == len(choices) || choices[i+1].at > end { // positions go on as if nothing had been put in
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
	return dirs, os.WriteFile(r.combined(), text, 0o644)
}
