package vet

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/ast/edge"
)

// conditionOf returns the condition that an expression of the control-flow graph stands for. For
// the case x of a switch with a tag, the graph contains only x, and the condition is tag == x.
func (res *resource) conditionOf(cond ast.Expr) ast.Expr {
	cur, ok := res.fn.FindNode(cond)
	if !ok || cur.ParentEdgeKind() != edge.CaseClause_List {
		return cond
	}
	if of, ok := cur.Parent().Parent().Parent().Node().(*ast.SwitchStmt); ok && of.Tag != nil {
		return &ast.BinaryExpr{X: of.Tag, OpPos: cond.Pos(), Op: token.EQL, Y: cond}
	}
	return cond
}

// isAbsent reports whether the function holds no guard or scope if the condition cond has the given
// outcome. If okUnchanged is true, the variable ok, as in g, ok := s.TryGuard(), still has its
// first value. Only then can ok decide the condition.
func (res *resource) isAbsent(cond ast.Expr, outcome, okUnchanged bool) bool {
	if res.absentIf != nil && res.absentIf(ast.Unparen(cond), outcome) {
		return true
	}
	switch e := ast.Unparen(cond).(type) {
	case *ast.Ident:
		return okUnchanged && !outcome && res.ok != nil && res.info.Uses[e] == res.ok
	case *ast.UnaryExpr:
		return e.Op == token.NOT && res.isAbsent(e.X, !outcome, okUnchanged)
	case *ast.BinaryExpr:
		switch e.Op {
		case token.LAND, token.LOR:
			x, y := res.isAbsent(e.X, outcome, okUnchanged), res.isAbsent(e.Y, outcome, okUnchanged)
			// If x && y is true or x || y is false, then both x and y have this outcome.
			if outcome == (e.Op == token.LAND) {
				return x || y
			}
			return x && y
		case token.EQL, token.NEQ:
			return res.isAbsentIf(e.X, e.Y, outcome == (e.Op == token.EQL), okUnchanged)
		}
	}
	return false
}

// isAbsentIf reports whether a comparison proves that the function holds no guard or scope. x and y
// are the operands of the comparison, and equal is its result. okUnchanged is as in isAbsent.
func (res *resource) isAbsentIf(x, y ast.Expr, equal, okUnchanged bool) bool {
	if b, ok := isBool(res.info, y); ok {
		return res.isAbsent(x, equal == b, okUnchanged)
	}
	if b, ok := isBool(res.info, x); ok {
		return res.isAbsent(y, equal == b, okUnchanged)
	}
	return equal && (res.isVar(x) && isNil(res.info, y) || isNil(res.info, x) && res.isVar(y))
}

func (res *resource) isVar(e ast.Expr) bool {
	id, ok := ast.Unparen(e).(*ast.Ident)
	v, _ := res.info.ObjectOf(id).(*types.Var)
	return ok && v != nil && slices.Contains(res.vars, v)
}

func isNil(info *types.Info, e ast.Expr) bool { return info.Types[e].IsNil() }

// isBool returns the value of a constant boolean expression.
func isBool(info *types.Info, e ast.Expr) (value, ok bool) {
	v := info.Types[e].Value
	if v == nil || v.Kind() != constant.Bool {
		return false, false
	}
	return constant.BoolVal(v), true
}
