// Package vet finds mistakes in the use of package ctxshutdown before the program runs. Each check
// is an [analysis.Analyzer]:
//
//	lostguard    a guard that is not released on some path
//	softctx      a database or HTTP call that the stop cancels, although a guard promises to finish it
//	basecontext  an HTTP server whose requests the stop cancels
//	waitctx      a Wait whose context ends with the shutdown, or has ended
//	lostscope    a scope that is not shut down on some path
//
// The command swansongvet runs all of them, alone or under go vet:
//
//	go install github.com/swansong-go/swansong/vet/cmd/swansongvet@latest
//	go vet -vettool=$(which swansongvet) ./...
//
// # What the checks see
//
// The checks look at one function at a time, and at the assignments to its variables. A guard or a
// scope that the function returns, stores, sends, passes on, or that a function literal captures to
// release it, belongs to its new owner from then on. Only the function literal of a go statement is
// checked in the place of the function.
//
// The checks report nothing if they cannot decide: a context that is a parameter may be a soft or a
// hard context; a scope in two variables counts as two scopes, unless one variable was assigned to
// the other. A report is not always right; the documentation of each analyzer says when.
//
// Packages that do not depend on ctxshutdown are not checked.
package vet

import "golang.org/x/tools/go/analysis"

// Analyzers returns all analyzers of this package.
func Analyzers() []*analysis.Analyzer {
	return []*analysis.Analyzer{BaseContext, LostGuard, LostScope, SoftCtx, WaitCtx}
}
