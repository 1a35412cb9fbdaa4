package vet

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/edge"
	"golang.org/x/tools/go/ast/inspector"
)

// LostScope reports scopes that are not shut down on some path.
var LostScope = &analysis.Analyzer{
	Name: "lostscope",
	Doc: `check that every scope is shut down

A scope that is never stopped keeps what waits for its stop: goroutines, timers, its entry in its parent. This check reports
roots made by New and children made by WithCancel of package ctxshutdown if

  - the function can return without having called Shutdown, ShutdownCause or Force, or the cancel function of a child, and
    without having handed the scope over, or
  - the result is discarded.

Write

	s := ctxshutdown.New(ctx)
	defer s.Shutdown()

or

	child, cancel := ctxshutdown.WithCancel(s)
	defer cancel()

A scope that is returned, stored, or passed as a *Swansong belongs to its new owner. A scope that is passed as a
context.Context does not, because a function does not stop a context that it receives. Any use of cancel counts as a call,
as it does for lostcancel.

Not reported: scopes in func main of a program; paths after a receive from Done of the scope; and scopes that end with a
context of the same function (context.WithTimeout, signal.NotifyContext, another scope), with the context of a test, or with
the scope that graceful.Run passes to its function. If scopes that end with such a context are made in a loop with an
unknown number of iterations, they are reported, because they would accumulate. A scope that is discarded in a _test.go file
is not reported.

The suggested fix, a defer, is offered if the function only reads the scope and acquires guards of it.`,
	URL:      "https://pkg.go.dev/github.com/swansong-go/swansong/vet#LostScope",
	Requires: []*analysis.Analyzer{inspect.Analyzer, ctrlflow.Analyzer},
	Run:      runLostScope,
}

func runLostScope(pass *analysis.Pass) (any, error) {
	if !dependsOnCore(pass.Pkg) {
		return nil, nil
	}
	root := pass.ResultOf[inspect.Analyzer].(*inspector.Inspector).Root()
	from := newLineages(pass, root)
	for call := range root.Preorder((*ast.CallExpr)(nil)) {
		n := call.Node().(*ast.CallExpr)
		if fn := callee(pass.TypesInfo, n); isNamed(fn, corePath, "New", "WithCancel") && len(n.Args) > 0 {
			checkScope(pass, from, call, fn)
		}
	}
	return nil, nil
}

func checkScope(pass *analysis.Pass, from *lineages, call inspector.Cursor, fn *types.Func) {
	b, ok := bindingOf(call)
	if !ok {
		return
	}
	f, graph := graphOf(pass, call)
	if graph == nil || isMain(pass, f.Node()) || endsWithFunction(pass, from, call, f) {
		return
	}
	res := &resource{info: pass.TypesInfo, fn: f, graph: graph, def: b.stmt, declared: true}
	for _, id := range b.lhs {
		if id == nil {
			return
		}
		if id.Name == "_" {
			continue
		}
		v := variable(pass.TypesInfo, f.Node(), id)
		if v == nil {
			return
		}
		res.vars = append(res.vars, v)
		res.declared = res.declared && pass.TypesInfo.Defs[id] != nil
	}
	report := func(format string, args ...any) *analysis.Diagnostic {
		return &analysis.Diagnostic{Pos: call.Node().Pos(), End: call.Node().End(), Message: fmt.Sprintf(format, args...)}
	}
	if len(res.vars) == 0 {
		if isTest(pass, call.Node()) {
			return
		}
		pass.Report(*report("the scope of %s is discarded, so nothing can shut it down", fn.Name()))
		return
	}
	res.absentIf = func(cond ast.Expr, outcome bool) bool { return impliesStopped(res, cond, outcome) }
	res.findUses(func(v *types.Var, cur inspector.Cursor) effect { return scopeEffect(res, v, cur) })
	if !res.declared && res.isReleased() {
		return
	}
	lost := res.follow(nil)
	if len(lost) == 0 {
		return
	}
	s := res.vars[0]
	how, related := describe(pass, res, lost[0])
	end := s.Name() + ".Shutdown()"
	if !isScope(s.Type()) || len(res.vars) == 2 {
		end = res.vars[len(res.vars)-1].Name() + "()" // the call of the cancel function
	}
	d := report("the scope %s is not shut down when %s; write defer %s, or hand it over on every path", s.Name(), how, end)
	d.Related = related
	if isScope(s.Type()) && isOnlyRead(res) {
		d.SuggestedFixes = deferFix(pass, call, res, b, end)
	}
	pass.Report(*d)
}

// isMain reports whether fn is func main of a program. When main returns, the process ends.
func isMain(pass *analysis.Pass, fn ast.Node) bool {
	decl, ok := fn.(*ast.FuncDecl)
	return ok && decl.Recv == nil && decl.Name.Name == "main" && pass.Pkg.Name() == "main"
}

// endsWithFunction reports whether the context that a scope derives from ends at the latest when
// the function returns.
func endsWithFunction(pass *analysis.Pass, from *lineages, call, fn inspector.Cursor) bool {
	l := from.lineage(call.Node().(*ast.CallExpr).Args[0])
	inside := fn.Node()
	if loop, ok := inLoop(call); ok && !isBounded(pass.TypesInfo, loop) {
		inside = loop
	}
	for _, c := range l.calls {
		maker := callee(pass.TypesInfo, c)
		if isNamed(maker, "testing", "common.Context", "TB.Context") {
			return true
		}
		if derives(maker) && !isNamed(maker, "context", "WithValue") && inside.Pos() <= c.Pos() && c.Pos() < inside.End() {
			return true // lostcancel or lostscope reports this context if it may never end
		}
	}
	return inside == fn.Node() && slices.ContainsFunc(l.names, func(n name) bool { return isRun(pass.TypesInfo, fn, n) })
}

// isBounded reports whether a loop iterates over a value with a fixed length.
func isBounded(info *types.Info, loop ast.Node) bool {
	r, ok := loop.(*ast.RangeStmt)
	if !ok {
		return false
	}
	switch info.TypeOf(r.X).Underlying().(type) {
	case *types.Chan, *types.Signature:
		return false
	}
	return true
}

// isRun reports whether n is the scope that graceful.Run passes to the function literal at fn. Run
// shuts that scope down when the function literal returns.
func isRun(info *types.Info, fn inspector.Cursor, n name) bool {
	lit, ok := fn.Node().(*ast.FuncLit)
	if !ok || n.root.Pos() < lit.Type.Pos() || n.root.Pos() >= lit.Type.End() {
		return false
	}
	parent, kind, _ := parentOf(fn)
	return kind == edge.CallExpr_Args && isNamed(callee(info, parent.Node().(*ast.CallExpr)), gracefulPath, "Run")
}

const gracefulPath = "github.com/swansong-go/swansong/graceful"

// impliesStopped reports whether the scope has been stopped if a condition has the given outcome.
func impliesStopped(res *resource, cond ast.Expr, outcome bool) bool {
	switch e := cond.(type) {
	case *ast.CallExpr:
		return !outcome && isNamed(callee(res.info, e), corePath, "Sleep") && res.isVar(e.Args[0])
	case *ast.BinaryExpr:
		call, ok := ast.Unparen(e.X).(*ast.CallExpr)
		return ok && (e.Op == token.EQL || e.Op == token.NEQ) && outcome == (e.Op == token.NEQ) && isNil(res.info, e.Y) &&
			isNamed(callee(res.info, call), corePath, "Swansong.Err") && res.isVar(receiverExpr(call))
	}
	return false
}

// scopeEffect returns how a use of the variable v, which belongs to the scope, affects that scope.
func scopeEffect(res *resource, v *types.Var, cur inspector.Cursor) effect {
	if !isScope(v.Type()) {
		return handOver // v is the cancel function, and any use of it may stop the scope
	}
	parent, kind, i := parentOf(cur)
	switch n := parent.Node().(type) {
	case *ast.SelectorExpr:
		switch n.Sel.Name {
		case "Shutdown", "ShutdownCause", "Force":
			return release
		case "Completion":
			return handOver // Completion hands the scope to other code, which may stop it
		case "Done":
			// After a receive from Done, the scope has been stopped. Any other use of Done only
			// waits for the stop.
			call := parent.Parent()
			if recv, kind, _ := parentOf(call); kind == edge.UnaryExpr_X && enclosing(cur) == res.fn.Node() && recv.Node().(*ast.UnaryExpr).Op == token.ARROW {
				return release
			}
		}
		return noEffect
	case *ast.BinaryExpr:
		return noEffect
	case *ast.CallExpr:
		if _, param, ok := argument(res.info, cur); ok && param != nil && isContext(param) {
			return noEffect
		}
	case *ast.AssignStmt:
		if kind == edge.AssignStmt_Lhs {
			if len(res.vars) > 1 { // the scope can still be stopped through the variable cancel
				return noEffect
			}
			return overwrite
		}
		if id, ok := n.Lhs[i].(*ast.Ident); ok && len(n.Lhs) == len(n.Rhs) && id.Name == "_" {
			return noEffect
		}
	}
	return handOver
}

// isOnlyRead reports whether every use of the scope is a call of one of readMethods. Then no other
// code has the scope, so a stop at the end of the function affects only this function.
func isOnlyRead(res *resource) bool {
	for _, m := range res.uses {
		parent, _, _ := parentOf(m.cur)
		sel, ok := parent.Node().(*ast.SelectorExpr)
		if !ok || !slices.Contains(readMethods, sel.Sel.Name) {
			return false
		}
	}
	return true
}

// readMethods are the methods of a scope that do not pass the scope to other code.
var readMethods = []string{
	"Deadline", "Err", "Force", "Guard", "GuardCount", "GuardReport", "Shutdown", "ShutdownCause", "State", "String", "TryGuard", "Value",
}
