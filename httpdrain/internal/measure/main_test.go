package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(serveEnv); addr != "" {
		os.Exit(serveUntilSignal(addr))
	}
	goleak.VerifyTestMain(m)
}

func TestRatio_MarksMedianBelowTargetAsMissed(t *testing.T) {
	for _, test := range []struct {
		ratios []float64
		want   string
	}{
		{[]float64{0.9, 0.98, 1.1}, "**0.980** (0.980–1.100)"},
		{[]float64{0.9, 0.97, 1.1}, "**0.970** (0.970–1.100)"},
		{[]float64{0.9, 0.9696, 1.1}, "**0.970** (0.970–1.100)"},
		{[]float64{0.9, 0.9694, 1.1}, "**0.969** (0.969–1.100), **missed**"},
	} {
		if diff := cmp.Diff(test.want, ratio(test.ratios)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", test.ratios, diff)
		}
	}
}

// The measurement itself loses no request: on a network without delay, every request is answered.
func TestStopFarClients_WithoutNetworkDelayCountsNoLostRequest(t *testing.T) {
	if got := stopFarClients(httpdrainServe, 3, 0, 100*time.Millisecond, 400*time.Millisecond); !strings.HasPrefix(got, "0 (") {
		t.Errorf("lost %s, want none", got)
	}
}
