// Testrunner is a subprocess that behaves as it is told, to try a launcher with:
//
//	testrunner --process-id test-1 --behavior clean|slow-drain|hang|request-more|crash --drain-duration 2s
package main

import (
	"os"

	"github.com/swansong-go/swansong/launcher/internal/testrunner"
)

func main() { os.Exit(testrunner.Main(os.Args[1:], os.Stderr)) }
