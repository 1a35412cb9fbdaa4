package vet

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ast/edge"
	"golang.org/x/tools/go/ast/inspector"
)

// deferFix suggests to insert a defer after the statement that acquires the guard or scope. If the
// guard or scope is handed over or acquired in a loop, deferFix suggests nothing, because the defer
// could release it while other code uses it.
func deferFix(pass *analysis.Pass, call inspector.Cursor, res *resource, b binding, deferred string) []analysis.SuggestedFix {
	if _, loop := inLoop(call); loop || !res.declared {
		return nil
	}
	for _, m := range res.uses {
		if m.effect == handOver || enclosing(m.cur) != res.fn.Node() {
			return nil
		}
	}
	at, depth := deferPlace(pass, res, b)
	if !at.IsValid() {
		return nil
	}
	return []analysis.SuggestedFix{{
		Message:   "Insert defer " + deferred,
		TextEdits: []analysis.TextEdit{insertLine(pass, res, at, strings.Repeat("\t", depth)+"defer "+deferred)},
	}}
}

// deferPlace returns a position at which the function holds the guard or scope, and the indentation
// of the statements there.
func deferPlace(pass *analysis.Pass, res *resource, b binding) (at token.Pos, depth int) {
	stmt, ok := res.fn.FindNode(b.stmt)
	if !ok {
		return token.NoPos, 0
	}
	if _, ok := b.stmt.(*ast.ValueSpec); ok {
		decl := stmt.Parent()
		if decl.Node().(*ast.GenDecl).Lparen.IsValid() {
			return token.NoPos, 0
		}
		stmt = decl.Parent() // within a function, a declaration is the child of a DeclStmt
	}
	switch stmt.ParentEdgeKind() {
	case edge.BlockStmt_List, edge.CaseClause_Body, edge.CommClause_Body:
		at, depth = stmt.Node().End(), column(pass, stmt.Node())-1
		// If g, ok := s.TryGuard() is followed by if !ok { return }, the defer comes after that if
		// statement.
		if next, ok := stmt.NextSibling(); ok && res.ok != nil {
			if n, ok := next.Node().(*ast.IfStmt); ok && n.Init == nil && n.Else == nil && res.isNegated(n.Cond) && endsWithJump(n.Body) {
				at = n.End()
			}
		}
	case edge.IfStmt_Init:
		n := stmt.Parent().Node().(*ast.IfStmt)
		depth = column(pass, n)
		if res.isOK(n.Cond) {
			at = n.Body.Lbrace + 1
		} else if block, ok := n.Else.(*ast.BlockStmt); ok && res.isNegated(n.Cond) && endsWithJump(n.Body) {
			at = block.Lbrace + 1
		}
	}
	return at, depth
}

func (res *resource) isOK(cond ast.Expr) bool {
	id, ok := ast.Unparen(cond).(*ast.Ident)
	return ok && res.ok != nil && res.info.Uses[id] == types.Object(res.ok)
}

func (res *resource) isNegated(cond ast.Expr) bool {
	not, ok := ast.Unparen(cond).(*ast.UnaryExpr)
	return ok && not.Op == token.NOT && res.isOK(not.X)
}

// endsWithJump reports whether a block ends with return, break, continue or goto.
func endsWithJump(b *ast.BlockStmt) bool {
	if len(b.List) == 0 {
		return false
	}
	switch b.List[len(b.List)-1].(type) {
	case *ast.ReturnStmt, *ast.BranchStmt:
		return true
	}
	return false
}

// insertLine returns an edit that inserts a statement on the line after pos, so that a comment on
// the line of pos stays there. If the block is on one line, the statement is inserted at pos.
func insertLine(pass *analysis.Pass, res *resource, pos token.Pos, stmt string) analysis.TextEdit {
	file := pass.Fset.File(pos)
	text := stmt + "\n"
	if cur, ok := res.fn.FindByPos(pos-1, pos); ok {
		for block := range cur.Enclosing((*ast.BlockStmt)(nil)) {
			if line := file.Line(pos); line < file.Line(block.Node().End()) {
				pos = file.LineStart(line + 1)
			} else {
				text = "\n" + text
			}
			break
		}
	}
	return analysis.TextEdit{Pos: pos, End: pos, NewText: []byte(text)}
}

// column returns the column of a node in its file. It ignores //line comments, which may have no
// columns in generated code.
func column(pass *analysis.Pass, n ast.Node) int { return pass.Fset.PositionFor(n.Pos(), false).Column }
