package main

import (
	"go/ast"
	"go/token"
	"strings"
)

// isBlock reports whether the body of a function surely has the same meaning, and compiles under
// the same conditions, as a block at the beginning of the function: it has no label, of which a
// second copy would not compile, its outermost block declares no variable with the name of a
// parameter or result, and if the function has results, the last statement is a return.
func isBlock(f *ast.FuncDecl) bool {
	if list := f.Body.List; f.Type.Results != nil {
		if len(list) == 0 {
			return false
		}
		if _, ok := list[len(list)-1].(*ast.ReturnStmt); !ok {
			return false
		}
	}
	own := map[string]bool{}
	for _, list := range []*ast.FieldList{f.Recv, f.Type.Params, f.Type.Results} {
		for _, name := range names(list) {
			own[name] = true
		}
	}
	for _, s := range f.Body.List {
		for _, name := range declared(s) {
			if own[name] {
				return false
			}
		}
	}
	return !contains(f.Body, func(n ast.Node) bool { _, ok := n.(*ast.LabeledStmt); return ok })
}

// wrapper returns what to write around the body of a function so that it becomes the body of a
// function literal, which is called with the parameters of the function.
func wrapper(p parsed, f *ast.FuncDecl) (before, after string) {
	var params []string
	for _, list := range []*ast.FieldList{f.Recv, f.Type.Params} {
		if list == nil {
			continue
		}
		for _, field := range list.List {
			t := p.slice(field.Type.Pos(), field.Type.End())
			if e, ok := field.Type.(*ast.Ellipsis); ok {
				t = "[]" + p.slice(e.Elt.Pos(), e.Elt.End())
			}
			for _, name := range field.Names {
				if name.Name != "_" {
					params = append(params, name.Name+" "+t)
				}
			}
		}
	}
	results := ""
	if r := f.Type.Results; r != nil {
		before, results = "return ", p.slice(r.Pos(), r.End())
	}
	args := append(names(f.Recv), names(f.Type.Params)...)
	return before + "func(" + strings.Join(params, ", ") + ") " + results + " {", "}(" + strings.Join(args, ", ") + ")"
}

// readsStack reports whether a body may behave differently in a function literal, because it calls
// recover, which has to be called by the deferred function itself, or looks at its callers. It does
// not find a body that calls another function which skips a number of callers.
func readsStack(body *ast.BlockStmt) bool {
	return contains(body, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		return ok && (id.Name == "recover" || id.Name == "Caller" || id.Name == "Callers")
	})
}

// names returns the names in a list of parameters or results, except "_".
func names(list *ast.FieldList) (all []string) {
	if list == nil {
		return nil
	}
	for _, field := range list.List {
		for _, name := range field.Names {
			if name.Name != "_" {
				all = append(all, name.Name)
			}
		}
	}
	return all
}

// declared returns the names of the variables, constants and types that a statement declares in
// its block.
func declared(s ast.Stmt) (all []string) {
	switch s := s.(type) {
	case *ast.AssignStmt:
		for _, left := range s.Lhs {
			if name, ok := left.(*ast.Ident); ok && s.Tok == token.DEFINE {
				all = append(all, name.Name)
			}
		}
	case *ast.DeclStmt:
		for _, spec := range s.Decl.(*ast.GenDecl).Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					all = append(all, name.Name)
				}
			case *ast.TypeSpec:
				all = append(all, spec.Name.Name)
			}
		}
	}
	return all
}

// contains reports whether a node has the property, or any node within it.
func contains(root ast.Node, property func(ast.Node) bool) (found bool) {
	ast.Inspect(root, func(n ast.Node) bool {
		found = found || property(n)
		return !found
	})
	return found
}
