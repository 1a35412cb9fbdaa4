package main

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The short form of the measurement: no request is lost by http3drain. On a busy machine a client
// may notice the first GOAWAY too late. Then its requests are refused, which is not a loss.
func TestStopUnderLoad_LosesNoRequest(t *testing.T) {
	for _, l := range []load{{"connections", 10, 1, 0, 0}, {"streams", 1, 50, 0, 0}, {"far", 20, 1, 20 * time.Millisecond, 10 * time.Millisecond}} {
		t.Run(l.name, func(t *testing.T) {
			var n tally
			stopUnderLoad(drain, l, &n)
			if n.lost.Load() > 0 {
				t.Errorf("%d requests of %d were lost", n.lost.Load(), n.started.Load())
			}
			t.Logf("%d requests, %d refused, %d not sent, %d closed", n.started.Load(), n.refused.Load(), n.unsent.Load(), n.closed.Load())
		})
	}
}
