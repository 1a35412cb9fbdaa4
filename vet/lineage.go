package vet

import (
	"go/ast"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ast/edge"
	"golang.org/x/tools/go/ast/inspector"
)

// A name is a variable, or a field of a variable such as h.app.scope. Two names may have the same
// value. The checks treat them as two values, unless the code assigns one name to the other.
type name struct {
	root       types.Object // the variable before the first dot, such as h in h.app.scope
	path       string       // the fields that follow the variable, each with a dot, as in ".app.scope"
	scope      bool         // set if the type is *ctxshutdown.Swansong
	viaContext bool         // the name stands for the scope of the context in the variable or field
}

func (n name) String() string { return n.root.Name() + n.path }

// A lineage has the known ancestors of a context. If one of these ancestors ends, the context ends.
// After
//
//	s := ctxshutdown.New(parent.Work())
//	child, cancel := ctxshutdown.WithCancel(s)
//	ctx, cancel := context.WithTimeout(child, d)
//
// the lineage of ctx has the names ctx, child and s, the three calls, and is hard.
type lineage struct {
	names []name
	calls []*ast.CallExpr // the calls that returned the context and its ancestors, in this order; the last one may be of any function
	hard  bool            // whether the ancestor beyond the known ones is the hard context of a scope, which does not end when that scope is stopped
}

// lineages finds the lineages of contexts in one package.
type lineages struct {
	info     *types.Info
	defs     map[*types.Var][]def
	visiting map[*types.Var]bool
}

// A def is one assignment to a variable.
type def struct {
	at    *ast.Ident // the variable that is assigned to
	value ast.Expr
	index int // index of the result, if value is a call with several results
}

func newLineages(pass *analysis.Pass, root inspector.Cursor) *lineages {
	r := &lineages{info: pass.TypesInfo, defs: map[*types.Var][]def{}, visiting: map[*types.Var]bool{}}
	for cur := range root.Preorder((*ast.AssignStmt)(nil), (*ast.ValueSpec)(nil), (*ast.CallExpr)(nil)) {
		switch n := cur.Node().(type) {
		case *ast.AssignStmt:
			for i, lhs := range n.Lhs {
				if id, ok := lhs.(*ast.Ident); ok {
					r.define(id, n.Rhs, i)
				}
			}
		case *ast.ValueSpec:
			for i, id := range n.Names {
				r.define(id, n.Values, i)
			}
		case *ast.CallExpr:
			// ctxshutdown.Go calls the function literal with its own first argument, a context. So
			// the parameter of the literal has the lineage of that argument.
			if isNamed(callee(r.info, n), corePath, "Go") && len(n.Args) == 2 {
				if f, ok := ast.Unparen(n.Args[1]).(*ast.FuncLit); ok {
					if params := f.Type.Params.List; len(params) == 1 && len(params[0].Names) == 1 {
						r.define(params[0].Names[0], n.Args[:1], 0)
					}
				}
			}
		}
	}
	return r
}

func (r *lineages) define(id *ast.Ident, values []ast.Expr, i int) {
	v, ok := r.info.ObjectOf(id).(*types.Var)
	switch {
	case !ok || len(values) == 0:
	case len(values) == 1:
		r.defs[v] = append(r.defs[v], def{id, values[0], i})
	default:
		r.defs[v] = append(r.defs[v], def{id, values[i], 0})
	}
}

// derives reports whether fn returns a context that ends with its first argument.
func derives(fn *types.Func) bool {
	return isNamed(fn, "context", "WithCancel", "WithCancelCause", "WithTimeout", "WithTimeoutCause", "WithDeadline", "WithDeadlineCause", "WithValue") ||
		isNamed(fn, "os/signal", "NotifyContext") ||
		isNamed(fn, "golang.org/x/sync/errgroup", "WithContext") ||
		isNamed(fn, corePath, "New", "WithCancel")
}

// lineage returns the lineage, the known ancestors, of the context that an expression stands for.
func (r *lineages) lineage(e ast.Expr) lineage {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		v, ok := r.info.ObjectOf(e).(*types.Var)
		if !ok {
			return lineage{}
		}
		l := r.lineageOfVar(v)
		l.names = append(embedding(name{root: v, scope: isScope(v.Type())}, v.Type()), l.names...)
		return l
	case *ast.SelectorExpr:
		if n, ok := r.name(e); ok {
			return lineage{names: embedding(n, r.info.TypeOf(e))}
		}
	case *ast.CallExpr:
		if n, ok := r.name(e); ok {
			return lineage{names: []name{n}}
		}
		if r.info.Types[e.Fun].IsType() && len(e.Args) == 1 {
			return r.lineage(e.Args[0])
		}
		fn := callee(r.info, e)
		if isNamed(fn, corePath, "Work", "Swansong.Work", "Swansong.BaseContext") {
			return lineage{hard: true}
		}
		if isNamed(fn, corePath, "FromContext") {
			return lineage{names: r.scopesOf(r.lineage(e.Args[0])), calls: []*ast.CallExpr{e}}
		}
		l := lineage{}
		if derives(fn) && len(e.Args) > 0 {
			l = r.lineage(e.Args[0])
		}
		l.calls = append([]*ast.CallExpr{e}, l.calls...)
		return l
	}
	return lineage{}
}

// lineageOfVar returns the lineage of v: the ancestors that all contexts assigned to v have in
// common.
func (r *lineages) lineageOfVar(v *types.Var) (l lineage) {
	if r.visiting[v] { // v derives from itself, so no ancestors of it can be found
		return lineage{}
	}
	r.visiting[v] = true
	defer delete(r.visiting, v)
	var further []*ast.CallExpr
	first := true
	for _, d := range r.defs[v] {
		var of lineage
		if d.index == 0 {
			of = r.lineage(d.value)
		}
		if slices.ContainsFunc(of.names, func(n name) bool { return n.root == v && n.path == "" }) {
			// ctx, cancel = context.WithTimeout(ctx, d) does not change the ancestors of ctx.
			further = append(further, of.calls...)
			continue
		}
		if first {
			l, first = of, false
			continue
		}
		l.names = slices.DeleteFunc(l.names, func(n name) bool { return !slices.Contains(of.names, n) })
		l.calls = slices.DeleteFunc(l.calls, func(c *ast.CallExpr) bool { return !slices.Contains(of.calls, c) })
		l.hard = l.hard || of.hard
	}
	l.calls = append(further, l.calls...)
	return l
}

// embedding returns the name n. If the type of n is a struct that embeds a scope, and is a context
// only because of that, the result has the name of the embedded scope before n.
func embedding(n name, t types.Type) []name {
	done, path, _ := types.LookupFieldOrMethod(t, true, nil, "Done")
	if fn, ok := done.(*types.Func); ok && len(path) > 1 && isNamed(fn, corePath, "Swansong.Done") {
		return []name{promoted(n, t, path), n}
	}
	return []name{n}
}

// promoted returns the name of an embedded field, directly or indirectly in n, whose method is
// promoted to n. The elements of path are the indexes of the embedded fields from n to that field,
// followed by the index of the method.
func promoted(n name, t types.Type, path []int) name {
	for _, i := range path[:len(path)-1] {
		if p, ok := t.Underlying().(*types.Pointer); ok {
			t = p.Elem()
		}
		f := t.Underlying().(*types.Struct).Field(i)
		n, t = name{root: n.root, path: n.path + "." + f.Name(), scope: isScope(f.Type())}, f.Type()
	}
	return n
}

// receiver returns the name of the receiver of a method call. For srv.Shutdown() it is srv.Swansong
// if srv embeds the scope.
func (r *lineages) receiver(call *ast.CallExpr) (name, bool) {
	sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok {
		return name{}, false
	}
	n, ok := r.name(sel.X)
	if s := r.info.Selections[sel]; ok && s != nil && len(s.Index()) > 1 {
		n = promoted(n, s.Recv(), s.Index())
	}
	return n, ok
}

// scopesOf returns names of the scopes from which a context derives, the nearest scope first.
// Before that, it returns the variables that contain the context itself and are assigned only once,
// marked viaContext: such a variable stands for the nearest scope.
func (r *lineages) scopesOf(l lineage) []name {
	var scopes []name
	for i, n := range l.names {
		if n.scope {
			return append(scopes, l.names[i:]...)
		}
		if r.hasOneValue(n) {
			scopes = append(scopes, name{root: n.root, path: n.path, scope: true, viaContext: true})
		}
	}
	return scopes
}

// hasOneValue reports whether the variable of a name keeps its first value, from its declaration or
// from the caller.
func (r *lineages) hasOneValue(n name) bool {
	defs := r.defsOf(n)
	return len(defs) == 0 || len(defs) == 1 && r.info.Defs[defs[0].at] != nil
}

// name returns the name of an expression. ok is false if the expression is not a variable, a field
// of a variable, or the context of a request.
func (r *lineages) name(e ast.Expr) (name, bool) {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		if v, ok := r.info.ObjectOf(e).(*types.Var); ok {
			return name{root: v, scope: isScope(v.Type())}, true
		}
	case *ast.SelectorExpr:
		if v, ok := r.info.Uses[e.Sel].(*types.Var); ok {
			if !v.IsField() { // v is a variable of another package
				return name{root: v, scope: isScope(v.Type())}, true
			}
			n, ok := r.name(e.X)
			return name{root: n.root, path: n.path + "." + v.Name(), scope: isScope(v.Type())}, ok
		}
	case *ast.CallExpr:
		if isNamed(callee(r.info, e), "net/http", "Request.Context") && receiverExpr(e) != nil {
			n, ok := r.name(receiverExpr(e))
			return name{root: n.root, path: n.path + ".Context()"}, ok
		}
	}
	return name{}, false
}

// scope returns the first scope in a lineage. ok is false if no stop of a scope ends the context.
func (l lineage) scope() (n name, ok bool) {
	i := slices.IndexFunc(l.names, func(n name) bool { return n.scope })
	if i < 0 || l.hard {
		return name{}, false
	}
	return l.names[i], true
}

func (r *lineages) defsOf(n name) []def {
	v, _ := n.root.(*types.Var)
	return r.defs[v]
}

// assignedBetween reports whether the variable of a name is assigned between two places.
func (r *lineages) assignedBetween(n name, from, to ast.Node) bool {
	return slices.ContainsFunc(r.defsOf(n), func(d def) bool { return from.Pos() < d.at.Pos() && d.at.Pos() < to.Pos() })
}

// argument returns the call of which the expression at cur is an argument, and the type of the
// parameter, nil if the parameter is variadic.
func argument(info *types.Info, cur inspector.Cursor) (call *ast.CallExpr, param types.Type, ok bool) {
	parent, kind, i := parentOf(cur)
	if kind != edge.CallExpr_Args {
		return nil, nil, false
	}
	call = parent.Node().(*ast.CallExpr)
	sig, ok := info.TypeOf(call.Fun).Underlying().(*types.Signature)
	if !ok { // the expression is a conversion, not a call
		return nil, nil, false
	}
	params := sig.Params()
	if sig.Variadic() && i >= params.Len()-1 || i >= params.Len() {
		return call, nil, true
	}
	return call, params.At(i).Type(), true
}
