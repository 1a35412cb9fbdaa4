package vet_test

import (
	"testing"

	"github.com/swansong-go/swansong/vet"
	"go.uber.org/goleak"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/analysistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each package in testdata says what is to be reported where, and what the code looks like after the suggested fixes. The
// files called quiet.go are as important: nothing is reported there.
func TestLostGuard(t *testing.T)   { check(t, vet.LostGuard, "./lostguard/...") }
func TestLostScope(t *testing.T)   { check(t, vet.LostScope, "./lostscope/...") }
func TestSoftCtx(t *testing.T)     { check(t, vet.SoftCtx, "./softctx") }
func TestBaseContext(t *testing.T) { check(t, vet.BaseContext, "./basecontext") }
func TestWaitCtx(t *testing.T)     { check(t, vet.WaitCtx, "./waitctx") }

func check(t *testing.T, a *analysis.Analyzer, pattern string) {
	analysistest.RunWithSuggestedFixes(t, analysistest.TestData(), a, pattern)
}
