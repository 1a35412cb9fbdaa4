// Package indirect uses a scope without importing ctxshutdown.
package indirect

import "example.com/service/lostguard/app"

func Handle(a *app.App, full bool) {
	g, ok := a.Scope.TryGuard() // want `the guard g is not released`
	if !ok || full {
		return
	}
	g.Release()
}
