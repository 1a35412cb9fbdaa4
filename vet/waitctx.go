package vet

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
)

// WaitCtx reports waits on a context that the shutdown ends.
var WaitCtx = &analysis.Analyzer{
	Name: "waitctx",
	Doc: `check that Wait has a context that outlives the shutdown

Completion.Wait waits until everything is released or its context ends. Given the scope that is being shut down, or a
context derived from it, it would wait for nothing: that context ends with the stop, and Wait returns ErrWaitContext. The
same goes for a context whose end has just been received: after <-ctx.Done(), ctx is no limit for waiting.

Write

	<-ctx.Done()
	limit, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := s.Shutdown().Wait(limit)

or context.WithoutCancel(ctx) in place of context.Background(), to keep the values of ctx.

There is no suggested fix: how long to wait is for you to say.`,
	URL:      "https://pkg.go.dev/github.com/swansong-go/swansong/vet#WaitCtx",
	Requires: []*analysis.Analyzer{inspect.Analyzer},
	Run:      runWaitCtx,
}

func runWaitCtx(pass *analysis.Pass) (any, error) {
	if !knowsCore(pass.Pkg) {
		return nil, nil
	}
	root := pass.ResultOf[inspect.Analyzer].(*inspector.Inspector).Root()
	from := newLineages(pass, root)
	for cur := range root.Preorder((*ast.CallExpr)(nil)) {
		call := cur.Node().(*ast.CallExpr)
		if !isNamed(callee(pass.TypesInfo, call), corePath, "Completion.Wait") || len(call.Args) != 1 || method(call) == nil {
			continue
		}
		given := from.of(call.Args[0])
		why := ""
		if scope, ok := from.completes(method(call)); ok && slices.Contains(given.names, scope) {
			why = fmt.Sprintf("ends when %s is told to stop", scope)
		} else if n, at, ok := from.ended(cur, given); ok {
			why = fmt.Sprintf("has ended, as %s has by line %d", n, pass.Fset.Position(at).Line)
		}
		if why != "" {
			pass.Report(analysis.Diagnostic{
				Pos: call.Args[0].Pos(),
				End: call.Args[0].End(),
				Message: "the context given to Wait " + why + ", so nothing would be waited for; " +
					"give it one of its own, such as context.WithTimeout(context.Background(), 10*time.Second)",
			})
		}
	}
	return nil, nil
}

// completes returns the scope that a completion is of.
func (r *lineages) completes(completion ast.Expr) (name, bool) {
	switch e := ast.Unparen(completion).(type) {
	case *ast.CallExpr:
		if isNamed(callee(r.info, e), corePath, "Swansong.Shutdown", "Swansong.ShutdownCause", "Swansong.Force", "Swansong.Completion") {
			return r.receiver(e)
		}
	case *ast.Ident:
		if n, ok := r.name(e); ok {
			if defs := r.defsOf(n); len(defs) == 1 {
				return r.completes(defs[0].value)
			}
		}
	}
	return name{}, false
}

// ended returns which part of a lineage has ended where cur is, because the path there leads through a receive from its
// Done.
func (r *lineages) ended(cur inspector.Cursor, l lineage) (n name, at token.Pos, ok bool) {
	received := func(stmt ast.Node) bool {
		x, isDone := r.doneOf(stmt)
		if !isDone {
			return false
		}
		// Another assignment in between makes it another context.
		n, ok = r.name(x)
		ok = ok && slices.Contains(l.names, n) && !r.assignedBetween(n, stmt, cur.Node())
		at = stmt.Pos()
		return ok
	}
	for c := cur; c.Node() != nil; c = c.Parent() {
		switch c.Node().(type) {
		case *ast.FuncLit, *ast.FuncDecl:
			return n, at, false
		case ast.Stmt: // in a case of a select, what it receives from comes first as well
			for before, more := c.PrevSibling(); more; before, more = before.PrevSibling() {
				if received(before.Node()) {
					return n, at, true
				}
			}
		}
	}
	return n, at, false
}

// doneOf returns x of the statement <-x.Done().
func (r *lineages) doneOf(stmt ast.Node) (x ast.Expr, ok bool) {
	s, ok := stmt.(*ast.ExprStmt)
	if !ok {
		return nil, false
	}
	recv, ok := ast.Unparen(s.X).(*ast.UnaryExpr)
	if !ok || recv.Op != token.ARROW {
		return nil, false
	}
	call, ok := ast.Unparen(recv.X).(*ast.CallExpr)
	if !ok || len(call.Args) != 0 {
		return nil, false
	}
	fn := callee(r.info, call)
	if fn == nil || fn.Name() != "Done" || method(call) == nil {
		return nil, false
	}
	t := r.info.TypeOf(method(call))
	return method(call), isContext(t) || isScope(t)
}
