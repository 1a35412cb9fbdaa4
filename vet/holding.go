package vet

import (
	"cmp"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/ast/edge"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/cfg"
)

// A holding is a value that a function has come by and has to see to: a guard, a scope.
//
//	(nothing) ──def──▶ held ──released, or handed to somebody else──▶ (nothing)
//	                    ├────the function returns────────────────────▶ lost
//	                    └────def again, or another assignment────────▶ lost
//
// The idea of following the paths of the control-flow graph to a return, and of taking for handed over what is mentioned
// in any other way, is that of lostcancel in golang.org/x/tools. This one also looks at the conditions on the way: after
// g, ok := s.TryGuard(), nothing is held where ok is false, for as long as ok is not assigned again.
type holding struct {
	info  *types.Info
	fn    inspector.Cursor // the FuncDecl or FuncLit
	graph *cfg.CFG
	def   ast.Node     // the node of graph after which it is held; nil: from the beginning
	vars  []*types.Var // any of them can release it; none: it is discarded
	ok    *types.Var   // whether there is anything to hold; nil: there is
	fresh bool         // vars are declared by def
	gone  goneFunc     // nil: no other condition tells

	mentions []mention         // of vars, in source order
	oks      []mention         // of ok; only assignments
	blurred  bool              // ok has gone where its value cannot be followed
	comms    map[ast.Node]bool // the sends and receives of which a select does one
}

// An effect is what the mention of a variable does to its value.
type effect int

const (
	nothing effect = iota
	overwrites
	releases
	handsOver
)

type mention struct {
	cur    inspector.Cursor
	effect effect
}

// An effectFunc judges a mention of v.
type effectFunc func(v *types.Var, cur inspector.Cursor) effect

// A goneFunc reports whether a condition that has come out as outcome says that there is nothing to hold (any more).
type goneFunc func(cond ast.Expr, outcome bool) bool

// graphOf returns the function around cur with its graph; none for what is outside of functions.
func graphOf(pass *analysis.Pass, cur inspector.Cursor) (fn inspector.Cursor, graph *cfg.CFG) {
	graphs := pass.ResultOf[ctrlflow.Analyzer].(*ctrlflow.CFGs)
	for fn = range cur.Enclosing((*ast.FuncDecl)(nil), (*ast.FuncLit)(nil)) {
		switch n := fn.Node().(type) {
		case *ast.FuncDecl:
			graph = graphs.FuncDecl(n)
		case *ast.FuncLit:
			graph = graphs.FuncLit(n)
		}
		return fn, graph
	}
	return fn, nil
}

// A binding says where the results of a call go.
type binding struct {
	stmt ast.Node     // the statement, as the graph has it
	lhs  []*ast.Ident // what they are assigned to, nil where that is no variable; none: they are discarded
}

// bind returns the binding of a call whose results are assigned or discarded by a statement of its own; other uses hand
// the results over at once.
func bind(call inspector.Cursor) (b binding, ok bool) {
	parent, kind, i := above(call)
	switch n := parent.Node().(type) {
	case *ast.ExprStmt, *ast.DeferStmt, *ast.GoStmt:
		return binding{stmt: n}, kind == edge.ExprStmt_X || kind == edge.DeferStmt_Call || kind == edge.GoStmt_Call
	case *ast.AssignStmt:
		lhs := make([]*ast.Ident, len(n.Lhs))
		for i, e := range n.Lhs {
			lhs[i], _ = e.(*ast.Ident)
		}
		if len(n.Rhs) > 1 {
			lhs = lhs[i : i+1]
		}
		return binding{n, lhs}, true
	case *ast.ValueSpec:
		lhs := n.Names
		if len(n.Values) > 1 {
			lhs = lhs[i : i+1]
		}
		return binding{n, lhs}, true
	}
	return b, false
}

// above returns the parent of an expression, beyond parentheses, and which child of it the expression is.
func above(cur inspector.Cursor) (parent inspector.Cursor, kind edge.Kind, index int) {
	kind, index = cur.ParentEdge()
	for parent = cur.Parent(); kind == edge.ParenExpr_X; parent = parent.Parent() {
		kind, index = parent.ParentEdge()
	}
	return parent, kind, index
}

// variable returns the local variable of fn that id names. It returns nil for those of others, which outlive fn.
func variable(info *types.Info, fn ast.Node, id *ast.Ident) *types.Var {
	v, _ := info.ObjectOf(id).(*types.Var)
	if v == nil || v.Pos() < fn.Pos() || v.Pos() >= fn.End() {
		return nil
	}
	return v
}

// look finds the mentions of what h holds.
func (h *holding) look(judge effectFunc) {
	body := h.fn.Node()
	h.comms = map[ast.Node]bool{}
	for cur := range h.fn.Preorder((*ast.CommClause)(nil)) {
		if comm := cur.Node().(*ast.CommClause).Comm; comm != nil {
			h.comms[comm] = true
		}
	}
	for cur := range h.fn.Preorder((*ast.Ident)(nil)) {
		v, _ := h.info.Uses[cur.Node().(*ast.Ident)].(*types.Var)
		switch {
		case v == nil:
		case slices.Contains(h.vars, v):
			e := judge(v, cur)
			if e == overwrites && enclosing(cur) != body {
				e = handsOver // by a function literal, which may run at any time
			}
			h.mentions = append(h.mentions, mention{cur, e})
		case v == h.ok:
			parent, kind, _ := above(cur)
			switch {
			case kind == edge.AssignStmt_Lhs && enclosing(cur) == body:
				h.oks = append(h.oks, mention{cur, overwrites})
			case enclosing(cur) != body || flowsOn(parent):
				h.blurred = true
			}
		}
	}
}

// flowsOn reports whether an expression becomes part of something that is kept or passed on, given what is above it.
func flowsOn(parent inspector.Cursor) bool {
	for {
		switch n := parent.Node().(type) {
		case *ast.AssignStmt, *ast.ValueSpec, *ast.SendStmt, *ast.CallExpr, *ast.CompositeLit, *ast.KeyValueExpr:
			return true
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				return true
			}
		case *ast.BinaryExpr, *ast.ParenExpr:
		default:
			return false
		}
		parent = parent.Parent()
	}
}

// enclosing returns the function around cur.
func enclosing(cur inspector.Cursor) ast.Node {
	for fn := range cur.Enclosing((*ast.FuncDecl)(nil), (*ast.FuncLit)(nil)) {
		return fn.Node()
	}
	return nil
}

// ends reports whether h is ever released or handed over.
func (h *holding) ends() bool {
	return slices.ContainsFunc(h.mentions, func(m mention) bool { return m.effect >= releases })
}

// A chosen is the send or receive that a select has done. The graph has all of them before the select chooses.
type chosen struct{ ast.Stmt }

// enter returns the nodes of a block, after what a select has done to come there.
func enter(b *cfg.Block) []ast.Node {
	if clause, ok := b.Stmt.(*ast.CommClause); ok && b.Kind == cfg.KindSelectCaseBody {
		return append([]ast.Node{chosen{clause.Comm}}, b.Nodes...)
	}
	return b.Nodes
}

// isCalled reports whether the mention is part of a call in n. Such are made before a select chooses.
func (m mention) isCalled(n ast.Node) (called bool) {
	for c := m.cur; c.Node() != n; c = c.Parent() {
		switch c.Node().(type) {
		case *ast.CallExpr:
			called = true
		case *ast.FuncLit:
			called = false
		}
	}
	return called
}

// effectOf returns what a node of the graph does to the value. The right side of an assignment comes first.
func (h *holding) effectOf(n ast.Node) (e effect) {
	for _, m := range within(h.mentions, n) {
		if !h.comms[n] || m.isCalled(n) {
			e = max(e, m.effect)
		}
	}
	if ret, ok := n.(*ast.ReturnStmt); ok && ret.Results == nil && e == nothing && h.isResult() {
		return handsOver
	}
	return e
}

// isResult reports whether one of the variables is a result of the function, so that a bare return returns it.
func (h *holding) isResult() bool {
	var results *ast.FieldList
	switch fn := h.fn.Node().(type) {
	case *ast.FuncDecl:
		results = fn.Type.Results
	case *ast.FuncLit:
		results = fn.Type.Results
	}
	return results != nil && slices.ContainsFunc(h.vars, func(v *types.Var) bool {
		return results.Pos() <= v.Pos() && v.Pos() < results.End()
	})
}

func within(mentions []mention, n ast.Node) []mention {
	from, _ := slices.BinarySearchFunc(mentions, n.Pos(), func(m mention, at token.Pos) int { return int(m.cur.Node().Pos() - at) })
	to := from
	for to < len(mentions) && mentions[to].cur.Node().Pos() < n.End() {
		to++
	}
	return mentions[from:to]
}

// follow walks all paths on which the value is held. It calls visit, which may be nil, for the nodes on the way, and
// returns those by which the value is lost, in source order from def on; what a loop leads back to comes last.
func (h *holding) follow(visit func(ast.Node)) (lost []ast.Node) {
	type state struct {
		block *cfg.Block
		known bool // ok still says whether there is anything to hold
	}
	seen := map[state]bool{}
	var walk func(s state, nodes []ast.Node)
	walk = func(s state, nodes []ast.Node) {
		for _, n := range nodes {
			if n == h.def {
				lost = append(lost, n)
				return
			}
			if e := h.effectOf(n); e == overwrites {
				lost = append(lost, n)
				return
			} else if e != nothing {
				return
			}
			if _, ok := n.(chosen); visit != nil && !ok {
				visit(n)
			}
			if _, ok := n.(*ast.ReturnStmt); ok {
				lost = append(lost, n)
				return
			}
			s.known = s.known && (h.comms[n] || len(within(h.oks, n)) == 0)
		}
		for i, next := range s.block.Succs {
			if len(s.block.Succs) == 2 && len(nodes) > 0 {
				if cond, ok := nodes[len(nodes)-1].(ast.Expr); ok && h.absent(h.compared(cond), i == 0, s.known) {
					continue
				}
			}
			if to := (state{next, s.known}); !seen[to] {
				seen[to] = true
				walk(to, enter(next))
			}
		}
	}
	if block, i := h.start(); block != nil {
		walk(state{block, true}, block.Nodes[i:])
	}
	before := func(n ast.Node) int {
		if h.def != nil && n.Pos() < h.def.Pos() {
			return 1
		}
		return 0
	}
	slices.SortFunc(lost, func(a, b ast.Node) int {
		return cmp.Or(before(a)-before(b), int(a.Pos()-b.Pos()))
	})
	return slices.Compact(lost)
}

// start returns the first node after def.
func (h *holding) start() (*cfg.Block, int) {
	if h.def == nil {
		return h.graph.Blocks[0], 0
	}
	for _, b := range h.graph.Blocks {
		if i := slices.Index(b.Nodes, h.def); i >= 0 && b.Live {
			return b, i + 1
		}
	}
	return nil, 0
}

// compared returns what a condition of the graph stands for: of case x, in a switch with a tag, the graph has x alone.
func (h *holding) compared(cond ast.Expr) ast.Expr {
	cur, ok := h.fn.FindNode(cond)
	if !ok || cur.ParentEdgeKind() != edge.CaseClause_List {
		return cond
	}
	if of, ok := cur.Parent().Parent().Parent().Node().(*ast.SwitchStmt); ok && of.Tag != nil {
		return &ast.BinaryExpr{X: of.Tag, OpPos: cond.Pos(), Op: token.EQL, Y: cond}
	}
	return cond
}

// absent reports whether nothing is held where cond has come out as outcome.
func (h *holding) absent(cond ast.Expr, outcome, known bool) bool {
	if h.gone != nil && h.gone(ast.Unparen(cond), outcome) {
		return true
	}
	switch e := ast.Unparen(cond).(type) {
	case *ast.Ident:
		return known && !outcome && h.ok != nil && h.info.Uses[e] == h.ok
	case *ast.UnaryExpr:
		return e.Op == token.NOT && h.absent(e.X, !outcome, known)
	case *ast.BinaryExpr:
		switch e.Op {
		case token.LAND, token.LOR:
			x, y := h.absent(e.X, outcome, known), h.absent(e.Y, outcome, known)
			if outcome == (e.Op == token.LAND) { // both came out as outcome
				return x || y
			}
			return x && y
		case token.EQL, token.NEQ:
			equal := outcome == (e.Op == token.EQL)
			if b, ok := isBool(h.info, e.Y); ok {
				return h.absent(e.X, equal == b, known)
			}
			if b, ok := isBool(h.info, e.X); ok {
				return h.absent(e.Y, equal == b, known)
			}
			return equal && (h.isVar(e.X) && isNil(h.info, e.Y) || isNil(h.info, e.X) && h.isVar(e.Y))
		}
	}
	return false
}

func (h *holding) isVar(e ast.Expr) bool {
	id, ok := ast.Unparen(e).(*ast.Ident)
	v, _ := h.info.ObjectOf(id).(*types.Var)
	return ok && v != nil && slices.Contains(h.vars, v)
}

func isNil(info *types.Info, e ast.Expr) bool { return info.Types[e].IsNil() }

// isBool returns the value of an expression that is true or false, whatever happens.
func isBool(info *types.Info, e ast.Expr) (value, ok bool) {
	v := info.Types[e].Value
	if v == nil || v.Kind() != constant.Bool {
		return false, false
	}
	return constant.BoolVal(v), true
}

// what names what is held.
func (h *holding) what() string { return h.vars[0].Name() }

// inLoop returns the innermost loop of the function around cur.
func inLoop(cur inspector.Cursor) (loop ast.Node, ok bool) {
	for c := range cur.Enclosing((*ast.FuncDecl)(nil), (*ast.FuncLit)(nil), (*ast.ForStmt)(nil), (*ast.RangeStmt)(nil)) {
		switch n := c.Node().(type) {
		case *ast.ForStmt, *ast.RangeStmt:
			return n, true
		}
		return nil, false
	}
	return nil, false
}
