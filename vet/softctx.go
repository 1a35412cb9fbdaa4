package vet

import (
	"fmt"
	"go/ast"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/edge"
	"golang.org/x/tools/go/ast/inspector"
)

// SoftCtx reports database and HTTP calls on the soft tier while a guard of the scope is held.
var SoftCtx = &analysis.Analyzer{
	Name: "softctx",
	Doc: `check that guarded work does not end at the stop

A guard promises that work is seen through: Shutdown waits for it. A scope as context, or a context derived from it, ends
when the scope is told to stop. A database or HTTP call that gets such a context while a guard of that scope is held is
cancelled in the middle of what the guard protects: the transaction is rolled back, and the stop waits for its error.

Pass the hard tier instead:

	g, ok := s.TryGuard()
	if !ok {
		return errStopping
	}
	defer g.Release()
	_, err := db.ExecContext(s.Work(), query)

and derive time-outs from it: context.WithTimeout(s.Work(), d).

Looked at are functions and methods of database/sql that take a context, methods Exec, Query and QueryRow (and the same
with Context) of any type that take a context, a string, and any arguments, as those of pgx and of sqlc, and, of net/http,
NewRequestWithContext, Request.WithContext and Request.Clone. A guard is held after its acquisition until its Release, in
the function given to Go of a scope, and after a deferred Release of a guard acquired outside.

The suggested fix inserts .Work() where the argument is the scope itself. False positives: a request for new work, such as
a long poll, that is made under a guard and is meant to end at the stop. Acquire the guard when there is work. A context
that is a parameter may be on either tier and is never reported.`,
	URL:      "https://pkg.go.dev/github.com/swansong-go/swansong/vet#SoftCtx",
	Requires: []*analysis.Analyzer{inspect.Analyzer, ctrlflow.Analyzer},
	Run:      runSoftCtx,
}

// A softCheck looks for calls on the soft tier in one package.
type softCheck struct {
	pass     *analysis.Pass
	from     *lineages
	reported map[*ast.CallExpr]bool // two guards may be held
}

func runSoftCtx(pass *analysis.Pass) (any, error) {
	if !knowsCore(pass.Pkg) {
		return nil, nil
	}
	root := pass.ResultOf[inspect.Analyzer].(*inspector.Inspector).Root()
	c := &softCheck{pass, newLineages(pass, root), map[*ast.CallExpr]bool{}}
	for cur := range root.Preorder((*ast.CallExpr)(nil), (*ast.DeferStmt)(nil)) {
		switch n := cur.Node().(type) {
		case *ast.DeferStmt:
			c.deferred(cur, n)
		case *ast.CallExpr:
			switch fn := callee(pass.TypesInfo, n); {
			case acquires(fn):
				c.acquired(cur, n)
			case isNamed(fn, corePath, "Swansong.Go", "Go"):
				c.started(cur, n, fn)
			}
		}
	}
	return nil, nil
}

// acquired checks what follows the acquisition of a guard.
func (c *softCheck) acquired(cur inspector.Cursor, call *ast.CallExpr) {
	b, ok := bind(cur)
	if !ok || len(b.lhs) == 0 {
		return
	}
	if h, ok := guardHolding(c.pass, cur, b); ok && len(h.vars) > 0 {
		c.check(h, c.guarded(call))
	}
}

// deferred checks what follows defer g.Release(), where g comes from outside or is acquired on the spot.
func (c *softCheck) deferred(cur inspector.Cursor, n *ast.DeferStmt) {
	g := method(n.Call)
	if !isNamed(callee(c.pass.TypesInfo, n.Call), corePath, "Guard.Release") || g == nil {
		return
	}
	fn, graph := graphOf(c.pass, cur)
	if graph == nil {
		return
	}
	h := &holding{info: c.pass.TypesInfo, fn: fn, graph: graph, def: n}
	if id, ok := ast.Unparen(g).(*ast.Ident); ok {
		if variable(c.pass.TypesInfo, fn.Node(), id) != nil {
			return // see acquired
		}
		v, ok := c.pass.TypesInfo.Uses[id].(*types.Var)
		if !ok {
			return
		}
		h.vars = []*types.Var{v}
	}
	c.check(h, c.guarded(g))
}

// started checks a function that is given to Go.
func (c *softCheck) started(cur inspector.Cursor, call *ast.CallExpr, fn *types.Func) {
	f := len(call.Args) - 1
	if f < 0 {
		return
	}
	var guarded lineage
	if fn.Signature().Recv() == nil {
		guarded = c.acquiredFrom(call.Args[0])
	} else {
		guarded = c.from.of(method(call))
	}
	lit, ok := ast.Unparen(call.Args[f]).(*ast.FuncLit)
	if !ok {
		return
	}
	body, ok := cur.FindNode(lit.Body)
	if !ok {
		return
	}
	if f, graph := graphOf(c.pass, body); graph != nil {
		c.check(&holding{info: c.pass.TypesInfo, fn: f, graph: graph}, guarded)
	}
}

// acquiredFrom returns the lineage of the scope of a guard that is acquired from a context.
func (c *softCheck) acquiredFrom(ctx ast.Expr) lineage {
	l := c.from.of(ctx)
	l.names = append(l.names, c.from.scopesOf(l)...)
	return l
}

// guarded returns the lineage of the scope that a guard belongs to.
func (c *softCheck) guarded(guard ast.Expr) lineage {
	switch e := ast.Unparen(guard).(type) {
	case *ast.Ident:
		if v, ok := c.pass.TypesInfo.ObjectOf(e).(*types.Var); ok && len(c.from.defs[v]) == 1 {
			return c.guarded(c.from.defs[v][0].value)
		}
	case *ast.CallExpr:
		switch fn := callee(c.pass.TypesInfo, e); {
		case isNamed(fn, corePath, "Swansong.Guard", "Swansong.TryGuard"):
			return c.from.of(method(e))
		case isNamed(fn, corePath, "Guard.Clone"):
			return c.guarded(method(e))
		case isNamed(fn, corePath, "Acquire"):
			return c.acquiredFrom(e.Args[0])
		}
	}
	return lineage{}
}

// check reports the calls on the soft tier of a scope while h is held.
func (c *softCheck) check(h *holding, guarded lineage) {
	if _, ok := guarded.scope(); !ok {
		return
	}
	h.look(func(v *types.Var, cur inspector.Cursor) effect {
		if isDeferred(cur) {
			return nothing // held until the function returns
		}
		return judgeGuard(v, cur)
	})
	h.follow(func(n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit:
				return false // it may run at another time
			case *ast.CallExpr:
				c.call(n, guarded)
			}
			return true
		})
	})
}

// isDeferred reports whether cur is in a call that is deferred.
func isDeferred(cur inspector.Cursor) bool {
	for c := range cur.Enclosing((*ast.DeferStmt)(nil), (*ast.FuncLit)(nil), (*ast.FuncDecl)(nil)) {
		if _, ok := c.Node().(*ast.FuncLit); ok {
			parent, kind, _ := above(c)
			return kind == edge.CallExpr_Fun && parent.ParentEdgeKind() == edge.DeferStmt_Call
		}
		_, ok := c.Node().(*ast.DeferStmt)
		return ok
	}
	return false
}

func (c *softCheck) call(call *ast.CallExpr, guarded lineage) {
	fn := callee(c.pass.TypesInfo, call)
	if c.reported[call] || len(call.Args) == 0 || !seesThrough(fn) {
		return
	}
	arg := call.Args[0]
	given := c.from.of(arg)
	i := slices.IndexFunc(given.names, func(n name) bool { return n.scope && slices.Contains(guarded.names, n) })
	if i < 0 {
		return
	}
	c.reported[call] = true
	for i > 0 && given.names[i].of {
		i-- // to what FromContext has been assigned to
	}
	scope := given.names[i]
	d := analysis.Diagnostic{
		Pos: arg.Pos(),
		End: arg.End(),
		Message: fmt.Sprintf("%s is cancelled when %s is told to stop, while a guard of it is held that is to see it through; pass %[2]s.Work(), or what derives from that",
			fn.Name(), scope),
	}
	if i == 0 && isScope(c.pass.TypesInfo.TypeOf(arg)) { // the Work of a child that holds nothing ends with its stop
		d.SuggestedFixes = workFix(arg)
	}
	c.pass.Report(d)
}

// seesThrough reports whether a call of fn does with its first argument, a context, what one wants to see through.
func seesThrough(fn *types.Func) bool {
	if fn == nil || fn.Pkg() == nil {
		return false
	}
	params := fn.Signature().Params()
	if params.Len() == 0 || !isContext(params.At(0).Type()) {
		return false
	}
	if fn.Pkg().Path() == "database/sql" || isNamed(fn, "net/http", "NewRequestWithContext", "Request.WithContext", "Request.Clone") {
		return true
	}
	switch fn.Name() {
	case "Exec", "ExecContext", "Query", "QueryContext", "QueryRow", "QueryRowContext":
	default:
		return false
	}
	if fn.Signature().Recv() == nil || params.Len() != 3 || !fn.Signature().Variadic() {
		return false
	}
	query, ok := params.At(1).Type().Underlying().(*types.Basic)
	args := params.At(2).Type().(*types.Slice).Elem().Underlying()
	any, empty := args.(*types.Interface)
	return ok && query.Kind() == types.String && empty && any.Empty()
}

// workFix suggests the hard tier of a scope in place of the scope.
func workFix(scope ast.Expr) []analysis.SuggestedFix {
	return []analysis.SuggestedFix{{
		Message:   "Insert .Work()",
		TextEdits: []analysis.TextEdit{{Pos: scope.End(), End: scope.End(), NewText: []byte(".Work()")}},
	}}
}
