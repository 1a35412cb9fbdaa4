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

A guard that is not released blocks its scope for ever: Shutdown waits for it until it is cut short. This check reports
guards acquired by Guard, TryGuard, Acquire or Clone of package ctxshutdown where

  - the function can return, or acquire the next guard, without having released the guard or having handed it over, or
  - the result is discarded. To ask whether a scope still runs, look at its Err.

Write

	g, ok := s.TryGuard()
	if !ok {
		return errStopping
	}
	defer g.Release()

or hand the guard to whoever ends the work: return it, store it, pass it on, capture it in a goroutine. That has to
happen on every path, those of errors too, also where a select does not send the guard, and on those of a go statement's
function, which is looked at where nobody else has the guard. Releasing a guard again, and releasing a nil guard, does nothing.

The suggested fix, a defer, is offered where the guard stays in the function and is not acquired in a loop. A path that
ends in a panic is not reported, nor a guard whose ok is passed on or stored, nor one that is discarded in a _test.go file:
tests hold up a scope on purpose. False positives: two conditions that always have the same outcome are taken for
independent, so a Release under one does not match a return under the other.`,
	URL:      "https://pkg.go.dev/github.com/swansong-go/swansong/vet#LostGuard",
	Requires: []*analysis.Analyzer{inspect.Analyzer, ctrlflow.Analyzer},
	Run:      runLostGuard,
}

func runLostGuard(pass *analysis.Pass) (any, error) {
	if !knowsCore(pass.Pkg) {
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
	b, ok := bind(call)
	if !ok {
		if isCloned(call) {
			reportDiscarded(pass, call, b, fn)
		}
		return
	}
	h, ok := guardHolding(pass, call, b)
	if !ok {
		return
	}
	if len(h.vars) == 0 && h.ok == nil {
		reportDiscarded(pass, call, b, fn)
		return
	}
	h.look(judgeGuard)
	if h.blurred || !h.fresh && h.ends() {
		return // a variable that is declared elsewhere may be released under a condition like that of its assignment
	}
	lost := h.follow(nil)
	if len(lost) == 0 {
		if inside := startedWith(pass, h); inside != nil {
			h, lost = inside, inside.follow(nil)
		}
	}
	switch {
	case len(lost) == 0:
	case len(h.vars) == 0:
		reportDiscarded(pass, call, b, fn)
	default:
		v := h.vars[0].Name()
		how, related := describe(pass, h, lost[0])
		pass.Report(analysis.Diagnostic{
			Pos:            call.Node().Pos(),
			End:            call.Node().End(),
			Message:        fmt.Sprintf("the guard %s is not released when %s; write defer %[1]s.Release(), or hand it over on every path", v, how),
			SuggestedFixes: deferFix(pass, call, h, b, v+".Release()"),
			Related:        related,
		})
	}
}

// startedWith returns the holding of a goroutine that captures the guard of h, or is given it, nil if there is none such: a go
// statement whose function is a literal runs that once. Nobody else may have the guard, and nothing in the literal that runs
// at another time: a literal in it, other than one it defers.
func startedWith(pass *analysis.Pass, h *holding) *holding {
	var body *ast.FuncLit
	vars := h.vars
	for _, m := range h.mentions {
		if m.effect == nothing {
			continue
		}
		in, ok := enclosing(m.cur).(*ast.FuncLit)
		if given, param := h.given(m); given != nil {
			in, vars = given, []*types.Var{param}
		} else if m.effect != releases || !ok {
			return nil
		}
		if body != nil && body != in {
			return nil
		}
		body = in
	}
	if body == nil || ast.Node(body) == h.fn.Node() {
		return nil
	}
	lit, ok := h.fn.FindNode(body)
	if !ok {
		return nil
	}
	call, kind, _ := above(lit)
	if kind != edge.CallExpr_Fun || call.ParentEdgeKind() != edge.GoStmt_Call || enclosing(call) != h.fn.Node() {
		return nil
	}
	graph := pass.ResultOf[ctrlflow.Analyzer].(*ctrlflow.CFGs).FuncLit(body)
	if graph == nil {
		return nil
	}
	inside := &holding{info: h.info, fn: lit, graph: graph, vars: vars, ok: h.ok}
	inside.look(judgeGuard)
	if inside.blurred {
		return nil
	}
	return inside
}

// given returns the literal that is called with the mention as an argument, and the parameter that gets it.
func (h *holding) given(m mention) (*ast.FuncLit, *types.Var) {
	parent, kind, i := above(m.cur)
	if kind != edge.CallExpr_Args || enclosing(m.cur) != h.fn.Node() {
		return nil, nil
	}
	lit, ok := ast.Unparen(parent.Node().(*ast.CallExpr).Fun).(*ast.FuncLit)
	if !ok {
		return nil, nil
	}
	params := h.info.TypeOf(lit).(*types.Signature).Params()
	if i >= params.Len() || !isPointerTo(params.At(i).Type(), corePath, "Guard") {
		return nil, nil
	}
	return lit, params.At(i)
}

// guardHolding returns the holding that an acquisition begins, not yet looked at; false if the guard is handed over at
// once.
func guardHolding(pass *analysis.Pass, call inspector.Cursor, b binding) (h *holding, ok bool) {
	fn, graph := graphOf(pass, call)
	if graph == nil {
		return nil, false
	}
	h = &holding{info: pass.TypesInfo, fn: fn, graph: graph, def: b.stmt, fresh: true}
	if len(b.lhs) == 0 {
		return h, true
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
		h.vars = []*types.Var{v}
		h.fresh = pass.TypesInfo.Defs[g] != nil
	}
	if len(b.lhs) == 2 {
		switch ok := b.lhs[1]; {
		case ok == nil: // somewhere that cannot be followed
			h.blurred = true
		case ok.Name != "_":
			h.ok = variable(pass.TypesInfo, fn.Node(), ok)
			h.blurred = h.ok == nil
		}
	}
	return h, true
}

// judgeGuard says what a mention does to a guard.
func judgeGuard(_ *types.Var, cur inspector.Cursor) effect {
	parent, kind, i := above(cur)
	switch n := parent.Node().(type) {
	case *ast.SelectorExpr:
		switch n.Sel.Name {
		case "Release":
			return releases
		case "Clone":
			return nothing
		}
	case *ast.BinaryExpr:
		return nothing
	case *ast.AssignStmt:
		if kind == edge.AssignStmt_Lhs {
			return overwrites
		}
		if id, ok := n.Lhs[i].(*ast.Ident); ok && len(n.Lhs) == len(n.Rhs) && id.Name == "_" {
			return nothing
		}
	}
	return handsOver
}

func isCloned(call inspector.Cursor) bool {
	parent, _, _ := above(call)
	sel, ok := parent.Node().(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "Clone"
}

func reportDiscarded(pass *analysis.Pass, call inspector.Cursor, b binding, fn *types.Func) {
	if isTest(pass, call.Node()) {
		return
	}
	asks := fn.Signature().Results().Len() == 2
	instead := "keep it, and release it"
	if asks {
		instead += "; to ask whether a scope still runs, look at its Err"
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

// describe says how a value is lost at a node of the graph.
func describe(pass *analysis.Pass, h *holding, at ast.Node) (how string, related []analysis.RelatedInformation) {
	line := pass.Fset.Position(at.Pos()).Line
	switch _, returns := at.(*ast.ReturnStmt); {
	case returns:
		how = fmt.Sprintf("the function returns at line %d", line)
	case at == h.def:
		how = "the loop comes back here"
	default:
		how = fmt.Sprintf("%s is overwritten at line %d", h.vars[0].Name(), line)
	}
	return how, []analysis.RelatedInformation{{Pos: at.Pos(), Message: h.what() + " is lost here"}}
}

func isTest(pass *analysis.Pass, n ast.Node) bool {
	return strings.HasSuffix(pass.Fset.File(n.Pos()).Name(), "_test.go")
}
