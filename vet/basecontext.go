package vet

import (
	"fmt"
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/edge"
	"golang.org/x/tools/go/ast/inspector"
)

// BaseContext reports HTTP servers whose requests the stop cancels.
var BaseContext = &analysis.Analyzer{
	Name: "basecontext",
	Doc: `check that HTTP requests do not end at the stop

The context of every request derives from the result of BaseContext, or ConnContext, of its http.Server. If that is a scope
or derives from one, the stop cancels every request in flight. A graceful shutdown should let them finish; instead, clients
get errors.

Write

	srv := &http.Server{BaseContext: s.BaseContext, Handler: h}

which returns s.Work(), and let the handler acquire a guard: ctxshutdown.Acquire(r.Context()). A loop in a handler that
should end at the stop checks the scope: ctxshutdown.FromContext(r.Context()). httpdrain.Serve does all of this.

Checked are function literals, functions and methods of the package that are assigned to the field, but not the functions
that they call. The suggested fix inserts .Work() if the function returns the scope itself.`,
	URL:      "https://pkg.go.dev/github.com/swansong-go/swansong/vet#BaseContext",
	Requires: []*analysis.Analyzer{inspect.Analyzer},
	Run:      runBaseContext,
}

func runBaseContext(pass *analysis.Pass) (any, error) {
	if !dependsOnCore(pass.Pkg) {
		return nil, nil
	}
	root := pass.ResultOf[inspect.Analyzer].(*inspector.Inspector).Root()
	from := newLineages(pass, root)
	for cur := range root.Preorder((*ast.KeyValueExpr)(nil), (*ast.AssignStmt)(nil)) {
		switch n := cur.Node().(type) {
		case *ast.KeyValueExpr:
			if id, ok := n.Key.(*ast.Ident); ok {
				checkBase(pass, root, from, id, n.Value)
			}
		case *ast.AssignStmt:
			for i, lhs := range n.Lhs {
				if sel, ok := lhs.(*ast.SelectorExpr); ok && len(n.Lhs) == len(n.Rhs) {
					checkBase(pass, root, from, sel.Sel, n.Rhs[i])
				}
			}
		}
	}
	return nil, nil
}

func checkBase(pass *analysis.Pass, root inspector.Cursor, from *lineages, field *ast.Ident, value ast.Expr) {
	v, ok := pass.TypesInfo.Uses[field].(*types.Var)
	if !ok || !v.IsField() || v.Pkg() == nil || v.Pkg().Path() != "net/http" || v.Name() != "BaseContext" && v.Name() != "ConnContext" {
		return
	}
	body := bodyOf(pass.TypesInfo, root, from, value)
	if body == nil {
		return
	}
	cur, ok := root.FindNode(body)
	if !ok {
		return
	}
	for ret := range cur.Preorder((*ast.ReturnStmt)(nil)) {
		n := ret.Node().(*ast.ReturnStmt)
		if len(n.Results) != 1 || enclosing(ret) != cur.Parent().Node() {
			continue
		}
		result := n.Results[0]
		scope, soft := from.lineage(result).scope()
		if !soft {
			continue
		}
		instead := scope.String() + ".Work()"
		if v.Name() == "BaseContext" {
			instead += fmt.Sprintf(", or set BaseContext to %s.BaseContext", scope)
		}
		d := analysis.Diagnostic{
			Pos:     result.Pos(),
			End:     result.End(),
			Message: fmt.Sprintf("the %s of the server derives from %s, whose stop cancels every request in flight; return %s", v.Name(), scope, instead),
			Related: []analysis.RelatedInformation{{Pos: value.Pos(), End: value.End(), Message: fmt.Sprintf("%s is set here", v.Name())}},
		}
		if isScope(pass.TypesInfo.TypeOf(result)) {
			d.SuggestedFixes = workFix(result)
		}
		pass.Report(d)
	}
}

// bodyOf returns the body of a function value, or nil if it is unknown or in another package.
func bodyOf(info *types.Info, root inspector.Cursor, from *lineages, value ast.Expr) *ast.BlockStmt {
	var id *ast.Ident
	switch e := ast.Unparen(value).(type) {
	case *ast.FuncLit:
		return e.Body
	case *ast.Ident:
		id = e
	case *ast.SelectorExpr:
		id = e.Sel
	default:
		return nil
	}
	switch obj := info.Uses[id].(type) {
	case *types.Var:
		if defs := from.defs[obj]; len(defs) == 1 {
			if lit, ok := ast.Unparen(defs[0].value).(*ast.FuncLit); ok {
				return lit.Body
			}
		}
	case *types.Func:
		for decl := range root.Preorder((*ast.FuncDecl)(nil)) {
			if n := decl.Node().(*ast.FuncDecl); info.Defs[n.Name] == obj && decl.ParentEdgeKind() == edge.File_Decls {
				return n.Body
			}
		}
	}
	return nil
}
