// Testrunner is a subprocess for tests of a launcher. Flags say how it behaves:
//
//	testrunner --process-id test-1 --behavior clean|slow-drain|hang|request-more|crash --drain-duration 2s
package main

import (
	"os"

	"github.com/swansong-go/swansong/launcher/internal/testrunner"
)

func main() { os.Exit(testrunner.Main(os.Args[1:], os.Stderr)) }
