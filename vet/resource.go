package vet

import (
	"cmp"
	"go/ast"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/ast/edge"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/cfg"
)

// A resource is a value that a function has acquired and must release: a guard or a scope.
//
//	(none) ──def──▶ held ──released, or handed over───────────▶ (none)
//	                 ├─────the function returns────────────────▶ lost
//	                 └─────def again, or another assignment────▶ lost
//
// As lostcancel in golang.org/x/tools does, the check follows the paths of the control-flow graph
// to a return, and takes any other use of the variable for a hand-over. Unlike lostcancel, it
// evaluates the conditions on the way: after g, ok := s.TryGuard() there is no guard if ok is
// false, until ok is assigned again.
type resource struct {
	info     *types.Info
	fn       inspector.Cursor // the FuncDecl or FuncLit that acquires the resource
	graph    *cfg.CFG
	def      ast.Node      // the node of graph after which the resource is held; nil: it is held from the beginning
	vars     []*types.Var  // the resource can be released through each of these variables; none: the resource is discarded
	ok       *types.Var    // this bool variable is false if the call returned no resource; nil if the call always returns one
	declared bool          // whether the statement def declares the variables in vars
	absentIf conditionFunc // reports whether the outcome of a condition implies that there is no resource; nil: it never does

	uses        []variableUse     // uses of the variables in vars, in source order
	oks         []variableUse     // assignments to the variable that the field ok names
	untraceable bool              // the value of ok is also used in a way that cannot be followed
	comms       map[ast.Node]bool // the sends and receives of select statements
}

// An effect is what a use of a variable does to the resource in the variable.
type effect int

const (
	noEffect effect = iota
	overwrite
	release
	handOver
)

type variableUse struct {
	cur    inspector.Cursor
	effect effect
}

// An effectFunc returns the effect of the use of v at cur.
type effectFunc func(v *types.Var, cur inspector.Cursor) effect

// A conditionFunc reports whether a condition, if its value is outcome, proves that the call has
// returned no resource, so that nothing has to be released.
type conditionFunc func(cond ast.Expr, outcome bool) bool

// graphOf returns the function around cur and its control-flow graph, which is nil outside of
// functions.
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

// A binding has the variables to which the results of a call are assigned.
type binding struct {
	stmt ast.Node     // the statement that has the call; it is a node of the control-flow graph
	lhs  []*ast.Ident // one per result, nil if it is not assigned to a variable; empty if the statement assigns nothing
}

// bindingOf returns the variables to which the results of a call are assigned. ok is false if the
// results are neither assigned nor discarded, as in f(g()), where they are handed over at once.
func bindingOf(call inspector.Cursor) (b binding, ok bool) {
	parent, kind, i := parentOf(call)
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

// parentOf returns the parent of an expression, without parentheses, and the edge from the parent
// to the expression.
func parentOf(cur inspector.Cursor) (parent inspector.Cursor, kind edge.Kind, index int) {
	kind, index = cur.ParentEdge()
	for parent = cur.Parent(); kind == edge.ParenExpr_X; parent = parent.Parent() {
		kind, index = parent.ParentEdge()
	}
	return parent, kind, index
}

// variable returns the local variable of fn that id names, or nil if the variable is declared
// outside fn.
func variable(info *types.Info, fn ast.Node, id *ast.Ident) *types.Var {
	v, _ := info.ObjectOf(id).(*types.Var)
	if v == nil || v.Pos() < fn.Pos() || v.Pos() >= fn.End() {
		return nil
	}
	return v
}

// findUses sets the field uses to the uses of the variables in the field vars, and the field oks to
// the assignments to the variable in the field ok.
func (res *resource) findUses(effectAt effectFunc) {
	body := res.fn.Node()
	res.comms = map[ast.Node]bool{}
	for cur := range res.fn.Preorder((*ast.CommClause)(nil)) {
		if comm := cur.Node().(*ast.CommClause).Comm; comm != nil {
			res.comms[comm] = true
		}
	}
	for cur := range res.fn.Preorder((*ast.Ident)(nil)) {
		v, _ := res.info.Uses[cur.Node().(*ast.Ident)].(*types.Var)
		switch {
		case v == nil:
		case slices.Contains(res.vars, v):
			e := effectAt(v, cur)
			if e == overwrite && enclosing(cur) != body {
				e = handOver // the assignment is in a function literal, which may run at any time
			}
			res.uses = append(res.uses, variableUse{cur, e})
		case v == res.ok:
			parent, kind, _ := parentOf(cur)
			switch {
			case kind == edge.AssignStmt_Lhs && enclosing(cur) == body:
				res.oks = append(res.oks, variableUse{cur, overwrite})
			case enclosing(cur) != body || isPassedOn(parent):
				res.untraceable = true
			}
		}
	}
}

// isPassedOn reports whether an expression with the given parent in the syntax tree becomes part of
// a value that is stored or passed on.
func isPassedOn(parent inspector.Cursor) bool {
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

// enclosing returns the innermost function declaration or literal around cur, or nil.
func enclosing(cur inspector.Cursor) ast.Node {
	for fn := range cur.Enclosing((*ast.FuncDecl)(nil), (*ast.FuncLit)(nil)) {
		return fn.Node()
	}
	return nil
}

// isReleased reports whether any use of the variables releases the guard or scope, or hands it
// over.
func (res *resource) isReleased() bool {
	return slices.ContainsFunc(res.uses, func(m variableUse) bool { return m.effect >= release })
}

// A selectedComm is the send or receive of the case that a select has chosen. The graph has the
// sends and receives of all cases before the point where the select chooses.
type selectedComm struct{ ast.Stmt }

// nodesOf returns the nodes of a block. In the block of a select case, the first is the send or
// receive of the case.
func nodesOf(b *cfg.Block) []ast.Node {
	if clause, ok := b.Stmt.(*ast.CommClause); ok && b.Kind == cfg.KindSelectCaseBody {
		return append([]ast.Node{selectedComm{clause.Comm}}, b.Nodes...)
	}
	return b.Nodes
}

// isInCall reports whether the use is part of a call in n. A select makes the calls in its cases
// before it chooses one.
func (m variableUse) isInCall(n ast.Node) (called bool) {
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

// effectOf returns the effect of a node of the control-flow graph on the guard or scope. In g =
// f(g), the guard is handed over before g is overwritten, so the effect is handOver.
func (res *resource) effectOf(n ast.Node) (e effect) {
	for _, m := range within(res.uses, n) {
		if !res.comms[n] || m.isInCall(n) {
			e = max(e, m.effect)
		}
	}
	if ret, ok := n.(*ast.ReturnStmt); ok && ret.Results == nil && e == noEffect && res.isResult() {
		return handOver
	}
	return e
}

// isResult reports whether one of the variables with the guard or scope is a named result of the
// function. A return without values then returns the guard or scope.
func (res *resource) isResult() bool {
	var results *ast.FieldList
	switch fn := res.fn.Node().(type) {
	case *ast.FuncDecl:
		results = fn.Type.Results
	case *ast.FuncLit:
		results = fn.Type.Results
	}
	return results != nil && slices.ContainsFunc(res.vars, func(v *types.Var) bool {
		return results.Pos() <= v.Pos() && v.Pos() < results.End()
	})
}

func within(uses []variableUse, n ast.Node) []variableUse {
	from, _ := slices.BinarySearchFunc(uses, n.Pos(), func(m variableUse, at token.Pos) int { return int(m.cur.Node().Pos() - at) })
	to := from
	for to < len(uses) && uses[to].cur.Node().Pos() < n.End() {
		to++
	}
	return uses[from:to]
}

// follow walks all paths of the control-flow graph on which the guard or scope is held. It calls
// visit, which may be nil, for each node on the way. It returns the nodes at which the guard or
// scope is lost. First come those that follow its creation in the source, then those that precede
// it there and are reached through a loop.
func (res *resource) follow(visit func(ast.Node)) (lost []ast.Node) {
	type state struct {
		block *cfg.Block
		known bool // the variable ok of g, ok := s.TryGuard() still has its first value
	}
	seen := map[state]bool{}
	var walk func(s state, nodes []ast.Node)
	walk = func(s state, nodes []ast.Node) {
		for _, n := range nodes {
			if n == res.def {
				lost = append(lost, n)
				return
			}
			if e := res.effectOf(n); e == overwrite {
				lost = append(lost, n)
				return
			} else if e != noEffect {
				return
			}
			if _, ok := n.(selectedComm); visit != nil && !ok {
				visit(n)
			}
			if _, ok := n.(*ast.ReturnStmt); ok {
				lost = append(lost, n)
				return
			}
			s.known = s.known && (res.comms[n] || len(within(res.oks, n)) == 0)
		}
		for i, next := range s.block.Succs {
			if len(s.block.Succs) == 2 && len(nodes) > 0 {
				if cond, ok := nodes[len(nodes)-1].(ast.Expr); ok && res.isAbsent(res.conditionOf(cond), i == 0, s.known) {
					continue
				}
			}
			if to := (state{next, s.known}); !seen[to] {
				seen[to] = true
				walk(to, nodesOf(next))
			}
		}
	}
	if block, i := res.start(); block != nil {
		walk(state{block, true}, block.Nodes[i:])
	}
	before := func(n ast.Node) int {
		if res.def != nil && n.Pos() < res.def.Pos() {
			return 1
		}
		return 0
	}
	slices.SortFunc(lost, func(a, b ast.Node) int {
		return cmp.Or(before(a)-before(b), int(a.Pos()-b.Pos()))
	})
	return slices.Compact(lost)
}

// start returns the place in the control-flow graph from which on the resource is held: a block,
// and the index of a node in the block. The block is nil if def cannot be reached.
func (res *resource) start() (*cfg.Block, int) {
	if res.def == nil {
		return res.graph.Blocks[0], 0
	}
	for _, b := range res.graph.Blocks {
		if i := slices.Index(b.Nodes, res.def); i >= 0 && b.Live {
			return b, i + 1
		}
	}
	return nil, 0
}

// varName returns the name of the variable that has the guard or scope.
func (res *resource) varName() string { return res.vars[0].Name() }

// inLoop returns the innermost loop around cur within its function.
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
