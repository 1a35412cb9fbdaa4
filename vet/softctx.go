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

// SoftCtx reports database and HTTP calls that the stop cancels while a guard of the scope is held.
var SoftCtx = &analysis.Analyzer{
	Name: "softctx",
	Doc: `check that guarded work does not end at the stop

A guard promises that work will be finished: the shutdown waits for it. A scope used as a context, or a context derived
from it, ends when the scope is stopped. A database or HTTP call with such a context is cancelled in the middle of the work
that the guard protects: the transaction is rolled back, and the shutdown waits for nothing but the error.

Pass the hard context instead, which ends when the scope has drained:

	g, ok := s.TryGuard()
	if !ok {
		return errStopping
	}
	defer g.Release()
	_, err := db.ExecContext(s.Work(), query)

and derive timeouts from it: context.WithTimeout(s.Work(), d).

Checked are the functions and methods of database/sql that take a context; methods Exec, Query and QueryRow (and those with
the suffix Context) of any type that take a context, a string and any arguments, such as those of pgx and sqlc; and
NewRequestWithContext, Request.WithContext and Request.Clone of net/http. A guard is held from its acquisition until its
Release, in the function passed to Go of a scope, and after a deferred Release of a guard that was acquired outside.

The suggested fix inserts .Work() if the argument is the scope itself. False positives: a request for new work, such as a
long poll, that is made under a guard and should end at the stop. Acquire the guard when there is work. A context that is a
parameter may be a soft or a hard context, and is never reported.`,
	URL:      "https://pkg.go.dev/github.com/swansong-go/swansong/vet#SoftCtx",
	Requires: []*analysis.Analyzer{inspect.Analyzer, ctrlflow.Analyzer},
	Run:      runSoftCtx,
}

// A softCheck is the state of the analyzer softctx while it checks one package.
type softCheck struct {
	pass     *analysis.Pass
	from     *lineages
	reported map[*ast.CallExpr]bool // the database and HTTP calls that were reported; each is reported only once, even if it is made while two guards are held
}

func runSoftCtx(pass *analysis.Pass) (any, error) {
	if !dependsOnCore(pass.Pkg) {
		return nil, nil
	}
	root := pass.ResultOf[inspect.Analyzer].(*inspector.Inspector).Root()
	c := &softCheck{pass, newLineages(pass, root), map[*ast.CallExpr]bool{}}
	for cur := range root.Preorder((*ast.CallExpr)(nil), (*ast.DeferStmt)(nil)) {
		switch n := cur.Node().(type) {
		case *ast.DeferStmt:
			c.checkDefer(cur, n)
		case *ast.CallExpr:
			switch fn := callee(pass.TypesInfo, n); {
			case acquires(fn):
				c.checkAcquire(cur, n)
			case isNamed(fn, corePath, "Swansong.Go", "Go"):
				c.checkGo(cur, n, fn)
			}
		}
	}
	return nil, nil
}

// checkAcquire reports the calls, after the acquisition of a guard, whose context ends at the stop.
func (c *softCheck) checkAcquire(cur inspector.Cursor, call *ast.CallExpr) {
	b, ok := bindingOf(cur)
	if !ok || len(b.lhs) == 0 {
		return
	}
	if res, ok := guardResource(c.pass, cur, b); ok && len(res.vars) > 0 {
		c.check(res, c.scopesOfGuard(call))
	}
}

// checkDefer checks the code after defer g.Release(), if g is declared outside the function or is
// the result of a call, as in defer acquire().Release().
func (c *softCheck) checkDefer(cur inspector.Cursor, n *ast.DeferStmt) {
	g := receiverExpr(n.Call)
	if !isNamed(callee(c.pass.TypesInfo, n.Call), corePath, "Guard.Release") || g == nil {
		return
	}
	fn, graph := graphOf(c.pass, cur)
	if graph == nil {
		return
	}
	res := &resource{info: c.pass.TypesInfo, fn: fn, graph: graph, def: n}
	if id, ok := ast.Unparen(g).(*ast.Ident); ok {
		if variable(c.pass.TypesInfo, fn.Node(), id) != nil {
			return // g is a local variable: checkAcquire checks the code after its acquisition
		}
		v, ok := c.pass.TypesInfo.Uses[id].(*types.Var)
		if !ok {
			return
		}
		res.vars = []*types.Var{v}
	}
	c.check(res, c.scopesOfGuard(g))
}

// checkGo checks a function that is passed to ctxshutdown.Go, or to the method Go of a scope. While
// the function runs, a guard of the scope is held.
func (c *softCheck) checkGo(cur inspector.Cursor, call *ast.CallExpr, fn *types.Func) {
	f := len(call.Args) - 1
	if f < 0 {
		return
	}
	var guarded lineage
	if fn.Signature().Recv() == nil {
		guarded = c.acquiredFrom(call.Args[0])
	} else {
		guarded = c.from.lineage(receiverExpr(call))
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
		c.check(&resource{info: c.pass.TypesInfo, fn: f, graph: graph}, guarded)
	}
}

// acquiredFrom returns the lineage, the known ancestors, of the scope whose guard
// ctxshutdown.Acquire(ctx) or ctxshutdown.Go(ctx, f) acquires.
func (c *softCheck) acquiredFrom(ctx ast.Expr) lineage {
	l := c.from.lineage(ctx)
	l.names = append(l.names, c.from.scopesOf(l)...)
	return l
}

// scopesOfGuard returns the lineage, the known ancestors, of the scope to which a guard belongs.
func (c *softCheck) scopesOfGuard(guard ast.Expr) lineage {
	switch e := ast.Unparen(guard).(type) {
	case *ast.Ident:
		if v, ok := c.pass.TypesInfo.ObjectOf(e).(*types.Var); ok && len(c.from.defs[v]) == 1 {
			return c.scopesOfGuard(c.from.defs[v][0].value)
		}
	case *ast.CallExpr:
		switch fn := callee(c.pass.TypesInfo, e); {
		case isNamed(fn, corePath, "Swansong.Guard", "Swansong.TryGuard"):
			return c.from.lineage(receiverExpr(e))
		case isNamed(fn, corePath, "Guard.Clone"):
			return c.scopesOfGuard(receiverExpr(e))
		case isNamed(fn, corePath, "Acquire"):
			return c.acquiredFrom(e.Args[0])
		}
	}
	return lineage{}
}

// check reports database and HTTP calls that are made while the guard in res is held and that a
// stop of the scope of that guard cancels: their context is the soft context of that scope, or of
// an ancestor of it. guarded is the lineage of the scope.
func (c *softCheck) check(res *resource, guarded lineage) {
	if _, ok := guarded.scope(); !ok {
		return
	}
	res.findUses(func(v *types.Var, cur inspector.Cursor) effect {
		if isDeferred(cur) {
			return noEffect // a deferred Release does not end the guard before the function returns
		}
		return guardEffect(v, cur)
	})
	res.follow(func(n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit:
				return false // its body may run when the guard is not held
			case *ast.CallExpr:
				c.call(n, guarded)
			}
			return true
		})
	})
}

// isDeferred reports whether the node at cur is part of a deferred call.
func isDeferred(cur inspector.Cursor) bool {
	for c := range cur.Enclosing((*ast.DeferStmt)(nil), (*ast.FuncLit)(nil), (*ast.FuncDecl)(nil)) {
		if _, ok := c.Node().(*ast.FuncLit); ok {
			parent, kind, _ := parentOf(c)
			return kind == edge.CallExpr_Fun && parent.ParentEdgeKind() == edge.DeferStmt_Call
		}
		_, ok := c.Node().(*ast.DeferStmt)
		return ok
	}
	return false
}

func (c *softCheck) call(call *ast.CallExpr, guarded lineage) {
	fn := callee(c.pass.TypesInfo, call)
	if c.reported[call] || len(call.Args) == 0 || !mustFinish(fn) {
		return
	}
	arg := call.Args[0]
	given := c.from.lineage(arg)
	i := slices.IndexFunc(given.names, func(n name) bool { return n.scope && slices.Contains(guarded.names, n) })
	if i < 0 {
		return
	}
	c.reported[call] = true
	for i > 0 && given.names[i].viaContext {
		i-- // name the scope by the variable that has the result of FromContext, if there is one
	}
	scope := given.names[i]
	d := analysis.Diagnostic{
		Pos: arg.Pos(),
		End: arg.End(),
		Message: fmt.Sprintf("%s is cancelled when %s is stopped, although a guard promises to finish the work; pass %[2]s.Work() or a context derived from it",
			fn.Name(), scope),
	}
	// Suggest a fix only if the argument is the scope itself. If the argument is a child of the
	// scope, its Work would not help: a child that holds no guards completes at its stop, which
	// ends Work.
	if i == 0 && isScope(c.pass.TypesInfo.TypeOf(arg)) {
		d.SuggestedFixes = workFix(arg)
	}
	c.pass.Report(d)
}

// mustFinish reports whether fn takes a context as its first argument and does work under it that a
// guard should protect from the stop.
func mustFinish(fn *types.Func) bool {
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

// workFix suggests the hard context of a scope instead of the scope.
func workFix(scope ast.Expr) []analysis.SuggestedFix {
	return []analysis.SuggestedFix{{
		Message:   "Insert .Work()",
		TextEdits: []analysis.TextEdit{{Pos: scope.End(), End: scope.End(), NewText: []byte(".Work()")}},
	}}
}
