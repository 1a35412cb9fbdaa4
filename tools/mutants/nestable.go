package main

import (
	"go/ast"
	"go/token"
)

// nestable reports whether a function's body has the same meaning, and compiles under the same
// conditions, as a block within the function:
//
//   - Where it assigns to a parameter or result with :=, which in a block declares a new variable,
//     nothing can still refer to the earlier one. (A return without values then does not compile,
//     and the mutant is built alone.)
//   - It has no label, because a second copy of the label would not compile.
//   - If the function has results, the body ends with a terminating statement, so that control
//     cannot reach the code after the block.
func nestable(f *ast.FuncDecl) bool {
	if f.Type.Results != nil && !endsTerminating(f.Body.List) {
		return false
	}
	labels := false
	ast.Inspect(f.Body, func(n ast.Node) bool {
		_, label := n.(*ast.LabeledStmt)
		labels = labels || label
		return !labels
	})
	return !labels && !redeclares(f)
}

// redeclares reports whether a statement in the outermost block of f declares a variable with the
// name of a parameter or result of f, to which a function literal or a pointer may refer. For a
// parameter, only function literals and pointers in earlier statements count. For a result, all in
// the function count: a deferred function literal, for example, may read the result.
func redeclares(f *ast.FuncDecl) bool {
	// For each parameter and result, whether a function literal or a pointer may refer to it.
	own := map[string]bool{}
	inBody := referred(f.Body)
	for _, list := range []*ast.FieldList{f.Recv, f.Type.Params, f.Type.Results} {
		if list == nil {
			continue
		}
		for _, field := range list.List {
			for _, p := range field.Names {
				if p.Name != "_" {
					own[p.Name] = list == f.Type.Results && inBody[p.Name]
				}
			}
		}
	}
	for _, s := range f.Body.List {
		switch s := s.(type) {
		case *ast.AssignStmt:
			for _, left := range s.Lhs {
				if name, ok := left.(*ast.Ident); ok && s.Tok == token.DEFINE && own[name.Name] {
					return true
				}
			}
		case *ast.DeclStmt: // a var with the name of a parameter compiles in an inner block, but not in the outermost one
			for _, spec := range s.Decl.(*ast.GenDecl).Specs {
				for _, name := range declared(spec) {
					if _, ok := own[name.Name]; ok {
						return true
					}
				}
			}
		}
		for name := range referred(s) {
			if _, ok := own[name]; ok {
				own[name] = true
			}
		}
	}
	return false
}

// declared returns the names that a specification declares.
func declared(spec ast.Spec) []*ast.Ident {
	switch spec := spec.(type) {
	case *ast.ValueSpec:
		return spec.Names
	case *ast.TypeSpec:
		return []*ast.Ident{spec.Name}
	}
	return nil
}

// referred returns the names of variables to which function literals and pointers in a statement
// may refer.
func referred(s ast.Stmt) map[string]bool {
	names := map[string]bool{}
	addIdents := func(n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				names[id.Name] = true
			}
			return true
		})
	}
	ast.Inspect(s, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			addIdents(n)
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				addIdents(n.X)
			}
		}
		return true
	})
	return names
}

// endsTerminating reports whether the last of the statements is a terminating statement, as the
// language specification defines it for code without labels and goto.
func endsTerminating(list []ast.Stmt) bool {
	if len(list) == 0 {
		return false
	}
	switch s := list[len(list)-1].(type) {
	case *ast.ReturnStmt:
		return true
	case *ast.ExprStmt:
		if call, ok := s.X.(*ast.CallExpr); ok {
			name, ok := call.Fun.(*ast.Ident)
			return ok && name.Name == "panic"
		}
	case *ast.BlockStmt:
		return endsTerminating(s.List)
	case *ast.IfStmt:
		return s.Else != nil && endsTerminating(s.Body.List) && endsTerminating([]ast.Stmt{s.Else})
	case *ast.ForStmt:
		return s.Cond == nil && !hasBreak(s.Body)
	case *ast.SwitchStmt:
		return allTerminating(s.Body)
	case *ast.TypeSwitchStmt:
		return allTerminating(s.Body)
	case *ast.SelectStmt:
		return len(s.Body.List) == 0 || allTerminating(s.Body)
	}
	return false
}

// allTerminating reports whether the clauses of a switch or select have no break, all end with a
// terminating statement, and include a default, which a select does not need.
func allTerminating(clauses *ast.BlockStmt) bool {
	hasDefault := false
	for _, c := range clauses.List {
		var body []ast.Stmt
		switch c := c.(type) {
		case *ast.CaseClause:
			body, hasDefault = c.Body, hasDefault || c.List == nil
			if n := len(body); n > 0 {
				if s, ok := body[n-1].(*ast.BranchStmt); ok && s.Tok == token.FALLTHROUGH {
					continue
				}
			}
		case *ast.CommClause:
			body, hasDefault = c.Body, true
		}
		if !endsTerminating(body) {
			return false
		}
	}
	return hasDefault && !hasBreak(clauses)
}

// hasBreak reports whether body contains a break that refers to the statement whose body it is.
func hasBreak(body *ast.BlockStmt) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ForStmt, *ast.RangeStmt, *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt, *ast.FuncLit:
			return false // a break inside n does not leave the statement whose body is searched
		case *ast.BranchStmt:
			found = found || n.Tok == token.BREAK
		}
		return !found
	})
	return found
}
