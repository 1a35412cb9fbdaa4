package vet_test

import (
	"fmt"

	"github.com/swansong-go/swansong/vet"
)

// To run all checks in your own driver, pass them to it, as swansongvet does:
// multichecker.Main(vet.Analyzers()...).
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
