package vet

import (
	"fmt"
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/edge"
	"golang.org/x/tools/go/ast/inspector"
)

// LostGuard reports guards that are not released on some path.
var LostGuard = &analysis.Analyzer{
	Name: "lostguard",
	Doc: `check that every guard is released

A guard that is not released blocks its scope forever: the shutdown waits for it until its time limit. This check reports
guards acquired by Guard, TryGuard, Acquire or Clone of package ctxshutdown if

  - the function can return, or acquire the next guard, without releasing the guard or handing it over, or
  - the result is discarded. To find out whether a scope is running, call its Err.

Write

	g, ok := s.TryGuard()
	if !ok {
		return errStopping
	}
	defer g.Release()

or hand the guard to the code that ends the work: return it, store it, pass it on, or capture it in a goroutine. That must
happen on every path, including error paths and the paths on which a select chooses another case than the one that sends
the guard. The function literal of a go statement is checked in the same way if no other code has the guard. It is safe to
release a guard twice, or to release a nil guard.

The suggested fix, a defer, is offered if the guard stays in the function and is not acquired in a loop. Not reported are
paths that end in a panic, guards whose ok is passed on or stored, and guards that a _test.go file discards, because tests
delay a scope on purpose. False positives: the check takes two conditions that always have the same outcome for
independent, so a Release under one does not match a return under the other.`,
	URL:      "https://pkg.go.dev/github.com/swansong-go/swansong/vet#LostGuard",
	Requires: []*analysis.Analyzer{inspect.Analyzer, ctrlflow.Analyzer},
	Run:      runLostGuard,
}

func runLostGuard(pass *analysis.Pass) (any, error) {
	if !dependsOnCore(pass.Pkg) {
		return nil, nil
	}
	root := pass.ResultOf[inspect.Analyzer].(*inspector.Inspector).Root()
	for call := range root.Preorder((*ast.CallExpr)(nil)) {
		if fn := callee(pass.TypesInfo, call.Node().(*ast.CallExpr)); acquires(fn) {
			checkGuard(pass, call, fn)
		}
	}
	return nil, nil
}

func checkGuard(pass *analysis.Pass, call inspector.Cursor, fn *types.Func) {
	b, ok := bindingOf(call)
	if !ok {
		if isCloned(call) {
			reportDiscarded(pass, call, b, fn)
		}
		return
	}
	res, ok := guardResource(pass, call, b)
	if !ok {
		return
	}
	if len(res.vars) == 0 && res.ok == nil {
		reportDiscarded(pass, call, b, fn)
		return
	}
	res.findUses(guardEffect)
	if res.untraceable || !res.declared && res.isReleased() {
		return // the guard may be assigned and released under the same condition, so report nothing
	}
	lost := res.follow(nil)
	if len(lost) == 0 {
		if inside := goroutineResource(pass, res); inside != nil {
			res, lost = inside, inside.follow(nil)
		}
	}
	switch {
	case len(lost) == 0:
	case len(res.vars) == 0:
		reportDiscarded(pass, call, b, fn)
	default:
		v := res.vars[0].Name()
		how, related := describe(pass, res, lost[0])
		pass.Report(analysis.Diagnostic{
			Pos:            call.Node().Pos(),
			End:            call.Node().End(),
			Message:        fmt.Sprintf("the guard %s is not released when %s; write defer %[1]s.Release(), or hand it over on every path", v, how),
			SuggestedFixes: deferFix(pass, call, res, b, v+".Release()"),
			Related:        related,
		})
	}
}

// goroutineResource returns a resource for a goroutine that captures the guard of res, or receives
// it as an argument. The function literal of the go statement can then be checked like a function
// that has acquired the guard, because it runs once. goroutineResource returns nil if there is no
// such goroutine, if the guard is used outside the literal, or if the guard is used in a further
// function literal inside it, which could run at another time. A deferred function literal is
// allowed.
func goroutineResource(pass *analysis.Pass, res *resource) *resource {
	var body *ast.FuncLit
	vars := res.vars
	for _, m := range res.uses {
		if m.effect == noEffect {
			continue
		}
		in, ok := enclosing(m.cur).(*ast.FuncLit)
		if given, param := res.literalCall(m); given != nil {
			in, vars = given, []*types.Var{param}
		} else if m.effect != release || !ok {
			return nil
		}
		if body != nil && body != in {
			return nil
		}
		body = in
	}
	if body == nil || ast.Node(body) == res.fn.Node() {
		return nil
	}
	lit, ok := res.fn.FindNode(body)
	if !ok {
		return nil
	}
	call, kind, _ := parentOf(lit)
	if kind != edge.CallExpr_Fun || call.ParentEdgeKind() != edge.GoStmt_Call || enclosing(call) != res.fn.Node() {
		return nil
	}
	graph := pass.ResultOf[ctrlflow.Analyzer].(*ctrlflow.CFGs).FuncLit(body)
	if graph == nil {
		return nil
	}
	inside := &resource{info: res.info, fn: lit, graph: graph, vars: vars, ok: res.ok}
	inside.findUses(guardEffect)
	if inside.untraceable {
		return nil
	}
	return inside
}

// literalCall returns the function literal that is called with the used variable as an argument,
// and the parameter that receives the value.
func (res *resource) literalCall(m variableUse) (*ast.FuncLit, *types.Var) {
	parent, kind, i := parentOf(m.cur)
	if kind != edge.CallExpr_Args || enclosing(m.cur) != res.fn.Node() {
		return nil, nil
	}
	lit, ok := ast.Unparen(parent.Node().(*ast.CallExpr).Fun).(*ast.FuncLit)
	if !ok {
		return nil, nil
	}
	params := res.info.TypeOf(lit).(*types.Signature).Params()
	if i >= params.Len() || !isPointerTo(params.At(i).Type(), corePath, "Guard") {
		return nil, nil
	}
	return lit, params.At(i)
}

// guardResource returns a resource for the guard that a call acquires. Its fields uses and oks are
// not set yet, see findUses. ok is false if the guard is handed over at once.
func guardResource(pass *analysis.Pass, call inspector.Cursor, b binding) (res *resource, ok bool) {
	fn, graph := graphOf(pass, call)
	if graph == nil {
		return nil, false
	}
	res = &resource{info: pass.TypesInfo, fn: fn, graph: graph, def: b.stmt, declared: true}
	if len(b.lhs) == 0 {
		return res, true
	}
	g := b.lhs[0]
	if g == nil {
		return nil, false
	}
	if g.Name != "_" {
		v := variable(pass.TypesInfo, fn.Node(), g)
		if v == nil {
			return nil, false
		}
		res.vars = []*types.Var{v}
		res.declared = pass.TypesInfo.Defs[g] != nil
	}
	if len(b.lhs) == 2 {
		switch ok := b.lhs[1]; {
		case ok == nil: // the second result of TryGuard is assigned to something other than a variable
			res.untraceable = true
		case ok.Name != "_":
			res.ok = variable(pass.TypesInfo, fn.Node(), ok)
			res.untraceable = res.ok == nil
		}
	}
	return res, true
}

// guardEffect returns the effect of a use of a variable on the guard in it.
func guardEffect(_ *types.Var, cur inspector.Cursor) effect {
	parent, kind, i := parentOf(cur)
	switch n := parent.Node().(type) {
	case *ast.SelectorExpr:
		switch n.Sel.Name {
		case "Release":
			return release
		case "Clone":
			return noEffect
		}
	case *ast.BinaryExpr:
		return noEffect
	case *ast.AssignStmt:
		if kind == edge.AssignStmt_Lhs {
			return overwrite
		}
		if id, ok := n.Lhs[i].(*ast.Ident); ok && len(n.Lhs) == len(n.Rhs) && id.Name == "_" {
			return noEffect
		}
	}
	return handOver
}

func isCloned(call inspector.Cursor) bool {
	parent, _, _ := parentOf(call)
	sel, ok := parent.Node().(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "Clone"
}

func reportDiscarded(pass *analysis.Pass, call inspector.Cursor, b binding, fn *types.Func) {
	if isTest(pass, call.Node()) {
		return
	}
	asks := fn.Signature().Results().Len() == 2
	instead := "assign it to a variable, and release it"
	if asks {
		instead += "; to find out whether a scope is running, call its Err"
	}
	d := analysis.Diagnostic{
		Pos:     call.Node().Pos(),
		End:     call.Node().End(),
		Message: fmt.Sprintf("the guard of %s is discarded, so nothing can release it: %s", fn.Name(), instead),
	}
	if stmt, ok := b.stmt.(*ast.ExprStmt); ok && !asks {
		if _, loop := inLoop(call); !loop {
			d.SuggestedFixes = []analysis.SuggestedFix{{
				Message: "Release it at the end of the function",
				TextEdits: []analysis.TextEdit{
					{Pos: stmt.Pos(), End: stmt.Pos(), NewText: []byte("defer ")},
					{Pos: stmt.End(), End: stmt.End(), NewText: []byte(".Release()")},
				},
			}}
		}
	}
	pass.Report(d)
}

// describe returns words that say how a guard or scope is lost at a node of the control-flow graph,
// such as "the loop repeats".
func describe(pass *analysis.Pass, res *resource, at ast.Node) (how string, related []analysis.RelatedInformation) {
	line := pass.Fset.Position(at.Pos()).Line
	switch _, returns := at.(*ast.ReturnStmt); {
	case returns:
		how = fmt.Sprintf("the function returns at line %d", line)
	case at == res.def:
		how = "the loop repeats"
	default:
		how = fmt.Sprintf("%s is overwritten at line %d", res.vars[0].Name(), line)
	}
	return how, []analysis.RelatedInformation{{Pos: at.Pos(), Message: res.varName() + " is lost here"}}
}

func isTest(pass *analysis.Pass, n ast.Node) bool {
	return strings.HasSuffix(pass.Fset.File(n.Pos()).Name(), "_test.go")
}
