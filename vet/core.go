package vet

import (
	"go/ast"
	"go/types"
	"slices"

	"golang.org/x/tools/go/types/typeutil"
)

const corePath = "github.com/swansong-go/swansong/ctxshutdown"

// dependsOnCore reports whether a package imports ctxshutdown, directly or through other packages.
// A package that imports it indirectly may receive scopes from another package.
func dependsOnCore(pkg *types.Package) bool {
	seen := map[*types.Package]bool{}
	var knows func(*types.Package) bool
	knows = func(p *types.Package) bool {
		if seen[p] {
			return false
		}
		seen[p] = true
		return p.Path() == corePath || slices.ContainsFunc(p.Imports(), knows)
	}
	return knows(pkg)
}

// callee returns the function or method that is called, or nil if it is unknown.
func callee(info *types.Info, call *ast.CallExpr) *types.Func {
	fn, _ := typeutil.Callee(info, call).(*types.Func)
	return fn
}

// isNamed reports whether fn belongs to the package and has one of the names. "Acquire" is the name
// of a function, "Swansong.Guard" that of a method.
func isNamed(fn *types.Func, pkg string, names ...string) bool {
	if fn == nil || fn.Pkg() == nil || fn.Pkg().Path() != pkg {
		return false
	}
	name := fn.Name()
	if recv := fn.Signature().Recv(); recv != nil {
		t := recv.Type()
		if p, ok := t.(*types.Pointer); ok {
			t = p.Elem()
		}
		named, ok := types.Unalias(t).(*types.Named)
		if !ok {
			return false
		}
		name = named.Obj().Name() + "." + name
	}
	return slices.Contains(names, name)
}

// isScope reports whether t is *ctxshutdown.Swansong.
func isScope(t types.Type) bool { return isPointerTo(t, corePath, "Swansong") }

func isPointerTo(t types.Type, pkg, name string) bool {
	p, ok := types.Unalias(t).(*types.Pointer)
	return ok && isType(p.Elem(), pkg, name)
}

func isType(t types.Type, pkg, name string) bool {
	named, ok := types.Unalias(t).(*types.Named)
	return ok && named.Obj().Name() == name && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == pkg
}

func isContext(t types.Type) bool { return isType(t, "context", "Context") }

// acquires reports whether fn returns a guard that its caller must release.
func acquires(fn *types.Func) bool {
	if fn == nil || fn.Pkg() == nil || fn.Pkg().Path() != corePath || fn.Signature().Results().Len() == 0 {
		return false
	}
	return isPointerTo(fn.Signature().Results().At(0).Type(), corePath, "Guard")
}

// receiverExpr returns x of the call x.f(), or nil if the call has another form.
func receiverExpr(call *ast.CallExpr) ast.Expr {
	if sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok {
		return sel.X
	}
	return nil
}
