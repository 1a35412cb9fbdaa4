package vet_test

import (
	"testing"

	"github.com/swansong-go/swansong/vet"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
