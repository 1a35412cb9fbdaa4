package vet_test

import (
	"fmt"

	"github.com/swansong-go/swansong/vet"
)

// A driver of one's own takes them all, as multichecker.Main(vet.Analyzers()...) does in swansongvet.
func ExampleAnalyzers() {
	for _, a := range vet.Analyzers() {
		fmt.Println(a.Name)
	}
	// Output:
	// basecontext
	// lostguard
	// lostscope
	// softctx
	// waitctx
}
