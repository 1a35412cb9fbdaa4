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

// deferFix suggests to defer a call right after the statement that makes what h holds. It suggests nothing where that could
// end somebody else's work: where the value also goes elsewhere, or lives no longer than one round of a loop.
func deferFix(pass *analysis.Pass, call inspector.Cursor, h *holding, b binding, deferred string) []analysis.SuggestedFix {
	if _, loop := inLoop(call); loop || !h.fresh {
		return nil
	}
	for _, m := range h.mentions {
		if m.effect == handsOver || enclosing(m.cur) != h.fn.Node() {
			return nil
		}
	}
	at, depth := deferPlace(pass, h, b)
	if !at.IsValid() {
		return nil
	}
	return []analysis.SuggestedFix{{
		Message:   "Insert defer " + deferred,
		TextEdits: []analysis.TextEdit{insertLine(pass, h, at, strings.Repeat("\t", depth)+"defer "+deferred)},
	}}
}

// deferPlace returns the position after which the value is surely held, and how deep the statements there are indented.
func deferPlace(pass *analysis.Pass, h *holding, b binding) (at token.Pos, depth int) {
	stmt, ok := h.fn.FindNode(b.stmt)
	if !ok {
		return token.NoPos, 0
	}
	if _, ok := b.stmt.(*ast.ValueSpec); ok {
		decl := stmt.Parent()
		if decl.Node().(*ast.GenDecl).Lparen.IsValid() {
			return token.NoPos, 0
		}
		stmt = decl.Parent() // the DeclStmt
	}
	switch stmt.ParentEdgeKind() {
	case edge.BlockStmt_List, edge.CaseClause_Body, edge.CommClause_Body:
		at, depth = stmt.Node().End(), column(pass, stmt.Node())-1
		// After g, ok := s.TryGuard() one writes if !ok { return } first.
		if next, ok := stmt.NextSibling(); ok && h.ok != nil {
			if n, ok := next.Node().(*ast.IfStmt); ok && n.Init == nil && n.Else == nil && h.isNegated(n.Cond) && leaves(n.Body) {
				at = n.End()
			}
		}
	case edge.IfStmt_Init:
		n := stmt.Parent().Node().(*ast.IfStmt)
		depth = column(pass, n)
		if h.isOK(n.Cond) {
			at = n.Body.Lbrace + 1
		} else if block, ok := n.Else.(*ast.BlockStmt); ok && h.isNegated(n.Cond) && leaves(n.Body) {
			at = block.Lbrace + 1
		}
	}
	return at, depth
}

func (h *holding) isOK(cond ast.Expr) bool {
	id, ok := ast.Unparen(cond).(*ast.Ident)
	return ok && h.ok != nil && h.info.Uses[id] == types.Object(h.ok)
}

func (h *holding) isNegated(cond ast.Expr) bool {
	not, ok := ast.Unparen(cond).(*ast.UnaryExpr)
	return ok && not.Op == token.NOT && h.isOK(not.X)
}

// leaves reports whether a block ends by going elsewhere.
func leaves(b *ast.BlockStmt) bool {
	if len(b.List) == 0 {
		return false
	}
	switch b.List[len(b.List)-1].(type) {
	case *ast.ReturnStmt, *ast.BranchStmt:
		return true
	}
	return false
}

// insertLine inserts a statement as the line after pos, so that a comment on the line of pos stays there. In a block of
// one line there is no line after pos.
func insertLine(pass *analysis.Pass, h *holding, pos token.Pos, stmt string) analysis.TextEdit {
	file := pass.Fset.File(pos)
	text := stmt + "\n"
	if cur, ok := h.fn.FindByPos(pos-1, pos); ok {
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

// column returns where a node begins in its line, whatever a //line comment says, which for generated code may have no columns.
func column(pass *analysis.Pass, n ast.Node) int { return pass.Fset.PositionFor(n.Pos(), false).Column }
