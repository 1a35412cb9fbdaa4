// Package vet finds mistakes in the use of package ctxshutdown before the program runs. Each check is an
// [analysis.Analyzer] of its own:
//
//	lostguard    a guard that is not released on some path
//	softctx      a database or HTTP call that the stop cancels while a guard promises to see it through
//	basecontext  an HTTP server whose requests the stop cancels
//	waitctx      a Wait on a context that ends with the shutdown, or has ended
//	lostscope    a scope that is not shut down on some path
//
// The command swansongvet runs them all, by itself or under go vet:
//
//	go install github.com/swansong-go/swansong/vet/cmd/swansongvet@latest
//	go vet -vettool=$(which swansongvet) ./...
//
// # What they see
//
// They look at one function at a time, and at what its variables were assigned. A guard or a scope that is returned,
// stored, sent, captured by a function that releases it or passed on is its new owner's from then on; only the function of a
// go statement is looked at in its place. Where they cannot
// tell, they are silent: a context that is a parameter may be on either tier, and a scope that two variables hold is taken
// for two, unless one was assigned to the other. What they report, though, is not always wrong; the doc of each analyzer says when.
//
// Code that does not know ctxshutdown is passed over at once.
package vet

import "golang.org/x/tools/go/analysis"

// Analyzers returns all analyzers of this package.
func Analyzers() []*analysis.Analyzer {
	return []*analysis.Analyzer{BaseContext, LostGuard, LostScope, SoftCtx, WaitCtx}
}
