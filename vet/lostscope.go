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

A scope that nobody tells to stop keeps whatever waits on it: goroutines, timers, its place in its parent. This check
reports roots made by New and children made by WithCancel of package ctxshutdown where

  - the function can return without having called Shutdown, ShutdownCause or Force, or the cancel of a child, and
    without having handed the scope over, or
  - the result is discarded.

Write

	s := ctxshutdown.New(ctx)
	defer s.Shutdown()

or

	child, cancel := ctxshutdown.WithCancel(s)
	defer cancel()

A scope that is returned, stored, or passed as a *Swansong belongs to its new owner. One that is passed as a
context.Context does not: who gets a context does not end it. Any use of cancel is taken for enough, as by lostcancel.

Not reported: in func main of a program, after a receive from the Done of the scope, and where the scope ends with a
context of the same function that has an end of its own (context.WithTimeout, signal.NotifyContext, another scope), with
that of a test, or with the scope that graceful.Run gives to its function; in a loop without a known number of rounds it
is, for there children would pile up until then. Nor is a scope that is discarded in a _test.go file.

The suggested fix, a defer, is offered where the scope is only looked at, and acquired guards of, in the function itself.`,
	URL:      "https://pkg.go.dev/github.com/swansong-go/swansong/vet#LostScope",
	Requires: []*analysis.Analyzer{inspect.Analyzer, ctrlflow.Analyzer},
	Run:      runLostScope,
}

func runLostScope(pass *analysis.Pass) (any, error) {
	if !knowsCore(pass.Pkg) {
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
	b, ok := bind(call)
	if !ok {
		return
	}
	f, graph := graphOf(pass, call)
	if graph == nil || isMain(pass, f.Node()) || endsAnyway(pass, from, call, f) {
		return
	}
	h := &holding{info: pass.TypesInfo, fn: f, graph: graph, def: b.stmt, fresh: true}
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
		h.vars = append(h.vars, v)
		h.fresh = h.fresh && pass.TypesInfo.Defs[id] != nil
	}
	report := func(format string, args ...any) *analysis.Diagnostic {
		return &analysis.Diagnostic{Pos: call.Node().Pos(), End: call.Node().End(), Message: fmt.Sprintf(format, args...)}
	}
	if len(h.vars) == 0 {
		if isTest(pass, call.Node()) {
			return
		}
		pass.Report(*report("the scope of %s is discarded, so nothing can shut it down", fn.Name()))
		return
	}
	h.gone = func(cond ast.Expr, outcome bool) bool { return saysStopped(h, cond, outcome) }
	h.look(func(v *types.Var, cur inspector.Cursor) effect { return judgeScope(h, v, cur) })
	if !h.fresh && h.ends() {
		return
	}
	lost := h.follow(nil)
	if len(lost) == 0 {
		return
	}
	s := h.vars[0]
	how, related := describe(pass, h, lost[0])
	end := s.Name() + ".Shutdown()"
	if !isScope(s.Type()) || len(h.vars) == 2 {
		end = h.vars[len(h.vars)-1].Name() + "()" // cancel
	}
	d := report("the scope %s is not shut down when %s; write defer %s, or hand it over on every path", s.Name(), how, end)
	d.Related = related
	if isScope(s.Type()) && onlyLookedAt(h) {
		d.SuggestedFixes = deferFix(pass, call, h, b, end)
	}
	pass.Report(*d)
}

// isMain reports whether fn is func main of a program: what is left when that returns ends with the process.
func isMain(pass *analysis.Pass, fn ast.Node) bool {
	decl, ok := fn.(*ast.FuncDecl)
	return ok && decl.Recv == nil && decl.Name.Name == "main" && pass.Pkg.Name() == "main"
}

// endsAnyway reports whether the context that a scope derives from ends when the function does, at the latest.
func endsAnyway(pass *analysis.Pass, from *lineages, call, fn inspector.Cursor) bool {
	l := from.of(call.Node().(*ast.CallExpr).Args[0])
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
			return true // whether it is ended is for lostcancel to say, or for a check of its own here
		}
	}
	return inside == fn.Node() && slices.ContainsFunc(l.names, func(n name) bool { return isRun(pass.TypesInfo, fn, n) })
}

// isBounded reports whether a loop goes over what is there already.
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

// isRun reports whether n is the scope that graceful.Run gives to a function, and shuts down when that returns.
func isRun(info *types.Info, fn inspector.Cursor, n name) bool {
	lit, ok := fn.Node().(*ast.FuncLit)
	if !ok || n.root.Pos() < lit.Type.Pos() || n.root.Pos() >= lit.Type.End() {
		return false
	}
	parent, kind, _ := above(fn)
	return kind == edge.CallExpr_Args && isNamed(callee(info, parent.Node().(*ast.CallExpr)), gracefulPath, "Run")
}

const gracefulPath = "github.com/swansong-go/swansong/graceful"

// saysStopped reports whether a condition that has come out as outcome says that the scope has been told to stop.
func saysStopped(h *holding, cond ast.Expr, outcome bool) bool {
	switch e := cond.(type) {
	case *ast.CallExpr:
		return !outcome && isNamed(callee(h.info, e), corePath, "Sleep") && h.isVar(e.Args[0])
	case *ast.BinaryExpr:
		call, ok := ast.Unparen(e.X).(*ast.CallExpr)
		return ok && (e.Op == token.EQL || e.Op == token.NEQ) && outcome == (e.Op == token.NEQ) && isNil(h.info, e.Y) &&
			isNamed(callee(h.info, call), corePath, "Swansong.Err") && h.isVar(method(call))
	}
	return false
}

// judgeScope says what a mention does to a scope.
func judgeScope(h *holding, v *types.Var, cur inspector.Cursor) effect {
	if !isScope(v.Type()) {
		return handsOver // any use of cancel
	}
	parent, kind, i := above(cur)
	switch n := parent.Node().(type) {
	case *ast.SelectorExpr:
		switch n.Sel.Name {
		case "Shutdown", "ShutdownCause", "Force":
			return releases
		case "Completion":
			return handsOver // somebody knows when it stops
		case "Done":
			// Received from, it says that the scope has been told to stop. Where the result goes elsewhere, somebody
			// waits for that, and it does not.
			call := parent.Parent()
			if recv, kind, _ := above(call); kind == edge.UnaryExpr_X && enclosing(cur) == h.fn.Node() && recv.Node().(*ast.UnaryExpr).Op == token.ARROW {
				return releases
			}
		}
		return nothing
	case *ast.BinaryExpr:
		return nothing
	case *ast.CallExpr:
		if _, param, ok := argument(h.info, cur); ok && param != nil && isContext(param) {
			return nothing
		}
	case *ast.AssignStmt:
		if kind == edge.AssignStmt_Lhs {
			if len(h.vars) > 1 { // there is cancel
				return nothing
			}
			return overwrites
		}
		if id, ok := n.Lhs[i].(*ast.Ident); ok && len(n.Lhs) == len(n.Rhs) && id.Name == "_" {
			return nothing
		}
	}
	return handsOver
}

// onlyLookedAt reports whether nobody can notice that a scope ends with the function.
func onlyLookedAt(h *holding) bool {
	for _, m := range h.mentions {
		parent, _, _ := above(m.cur)
		sel, ok := parent.Node().(*ast.SelectorExpr)
		if !ok || !slices.Contains(looks, sel.Sel.Name) {
			return false
		}
	}
	return true
}

var looks = []string{
	"Deadline", "Err", "Force", "Guard", "GuardCount", "GuardReport", "Shutdown", "ShutdownCause", "State", "String", "TryGuard", "Value",
}
