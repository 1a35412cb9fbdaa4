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

Completion.Wait waits until all guards are released or its context ends. A context that is the scope itself, or derives from
it, ends with the stop, so Wait returns ErrWaitContext at once. The same applies to a context whose end has just been
received: after <-ctx.Done(), ctx is not a limit for waiting.

Write

	<-ctx.Done()
	limit, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := s.Shutdown().Wait(limit)

or context.WithoutCancel(ctx) instead of context.Background(), to keep the values of ctx.

There is no suggested fix, because only you know how long to wait.`,
	URL:      "https://pkg.go.dev/github.com/swansong-go/swansong/vet#WaitCtx",
	Requires: []*analysis.Analyzer{inspect.Analyzer},
	Run:      runWaitCtx,
}

func runWaitCtx(pass *analysis.Pass) (any, error) {
	if !dependsOnCore(pass.Pkg) {
		return nil, nil
	}
	root := pass.ResultOf[inspect.Analyzer].(*inspector.Inspector).Root()
	from := newLineages(pass, root)
	for cur := range root.Preorder((*ast.CallExpr)(nil)) {
		call := cur.Node().(*ast.CallExpr)
		if !isNamed(callee(pass.TypesInfo, call), corePath, "Completion.Wait") || len(call.Args) != 1 || receiverExpr(call) == nil {
			continue
		}
		given := from.lineage(call.Args[0])
		why := ""
		if scope, ok := from.scopeOfCompletion(receiverExpr(call)); ok && slices.Contains(given.names, scope) {
			why = fmt.Sprintf("ends when %s is stopped", scope)
		} else if n, at, ok := from.endedBefore(cur, given); ok {
			why = fmt.Sprintf("has ended, because %s has ended at line %d", n, pass.Fset.Position(at).Line)
		}
		if why != "" {
			pass.Report(analysis.Diagnostic{
				Pos: call.Args[0].Pos(),
				End: call.Args[0].End(),
				Message: "the context given to Wait " + why + ", so Wait returns at once; " +
					"use another context, such as context.WithTimeout(context.Background(), 10*time.Second)",
			})
		}
	}
	return nil, nil
}

// scopeOfCompletion returns the scope to which a completion belongs.
func (r *lineages) scopeOfCompletion(completion ast.Expr) (name, bool) {
	switch e := ast.Unparen(completion).(type) {
	case *ast.CallExpr:
		if isNamed(callee(r.info, e), corePath, "Swansong.Shutdown", "Swansong.ShutdownCause", "Swansong.Force", "Swansong.Completion") {
			return r.receiver(e)
		}
	case *ast.Ident:
		if n, ok := r.name(e); ok {
			if defs := r.defsOf(n); len(defs) == 1 {
				return r.scopeOfCompletion(defs[0].value)
			}
		}
	}
	return name{}, false
}

// endedBefore reports whether a context has ended when the code reaches cur. l has the names of the
// context and of its known ancestors. The context has ended if, on the way to cur, the code has
// received from the Done channel of one of them: endedBefore returns its name, and where the
// statement is that receives.
func (r *lineages) endedBefore(cur inspector.Cursor, l lineage) (n name, at token.Pos, ok bool) {
	received := func(stmt ast.Node) bool {
		x, isDone := r.receivedDone(stmt)
		if !isDone {
			return false
		}
		// If the variable was assigned to after the receive and before the code at cur, it no
		// longer holds the context whose end was received.
		n, ok = r.name(x)
		ok = ok && slices.Contains(l.names, n) && !r.assignedBetween(n, stmt, cur.Node())
		at = stmt.Pos()
		return ok
	}
	for c := cur; c.Node() != nil; c = c.Parent() {
		switch c.Node().(type) {
		case *ast.FuncLit, *ast.FuncDecl:
			return n, at, false
		case ast.Stmt:
			// Search the statements before this one in its block. In the body of a select case, the
			// receive of the case is one of them.
			for before, more := c.PrevSibling(); more; before, more = before.PrevSibling() {
				if received(before.Node()) {
					return n, at, true
				}
			}
		}
	}
	return n, at, false
}

// receivedDone returns x if stmt is the statement <-x.Done(), and x is a context or a scope.
func (r *lineages) receivedDone(stmt ast.Node) (x ast.Expr, ok bool) {
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
	if fn == nil || fn.Name() != "Done" || receiverExpr(call) == nil {
		return nil, false
	}
	t := r.info.TypeOf(receiverExpr(call))
	return receiverExpr(call), isContext(t) || isScope(t)
}
