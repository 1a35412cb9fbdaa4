package main

import (
	"go/ast"
	"go/token"
	"slices"
)

// nestable reports whether a function's body has the same meaning, and compiles under the same
// conditions, as a block within the function:
//
//   - It redeclares no parameter and no result, also not with :=, which in a block would be a new
//     variable.
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

// redeclares reports whether the outermost block of a function names a parameter or result in a
// declaration or in :=.
func redeclares(f *ast.FuncDecl) bool {
	var names []*ast.Ident
	for _, s := range f.Body.List {
		switch s := s.(type) {
		case *ast.AssignStmt:
			for _, left := range s.Lhs {
				if name, ok := left.(*ast.Ident); ok && s.Tok == token.DEFINE {
					names = append(names, name)
				}
			}
		case *ast.DeclStmt:
			for _, spec := range s.Decl.(*ast.GenDecl).Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					names = append(names, spec.Names...)
				case *ast.TypeSpec:
					names = append(names, spec.Name)
				}
			}
		}
	}
	for _, list := range []*ast.FieldList{f.Recv, f.Type.Params, f.Type.Results} {
		if list == nil {
			continue
		}
		for _, field := range list.List {
			for _, p := range field.Names {
				if p.Name != "_" && slices.ContainsFunc(names, func(n *ast.Ident) bool { return n.Name == p.Name }) {
					return true
				}
			}
		}
	}
	return false
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
			return false // a break inside such a statement refers to that statement
		case *ast.BranchStmt:
			found = found || n.Tok == token.BREAK
		}
		return !found
	})
	return found
}
