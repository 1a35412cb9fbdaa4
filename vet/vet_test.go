package vet_test

import (
	"runtime/debug"
	"testing"

	"github.com/swansong-go/swansong/vet"
	"go.uber.org/goleak"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/analysistest"
)

func TestMain(m *testing.M) {
	// Each test reads the source of the standard library, once for each mutant. With fewer garbage
	// collections, that takes four fifths of the time.
	debug.SetGCPercent(400)
	goleak.VerifyTestMain(m)
}

// The packages in testdata have comments with the expected reports, and golden files with the code
// after the suggested fixes. In the files called quiet.go, no report is expected.
func TestLostGuard_ReportsMistakesInTestdata(t *testing.T) {
	check(t, vet.LostGuard, "./lostguard/...")
}
func TestLostScope_ReportsMistakesInTestdata(t *testing.T) {
	check(t, vet.LostScope, "./lostscope/...")
}
func TestSoftCtx_ReportsMistakesInTestdata(t *testing.T) { check(t, vet.SoftCtx, "./softctx") }
func TestBaseContext_ReportsMistakesInTestdata(t *testing.T) {
	check(t, vet.BaseContext, "./basecontext")
}
func TestWaitCtx_ReportsMistakesInTestdata(t *testing.T) { check(t, vet.WaitCtx, "./waitctx") }

func check(t *testing.T, a *analysis.Analyzer, pattern string) {
	analysistest.RunWithSuggestedFixes(t, analysistest.TestData(), a, pattern)
}
