//go:build unix

package launcher_test

import (
	"testing"
	"time"

	"github.com/swansong-go/swansong/launcher"
)

// A process that is stopped by order is replaced at once and without counting as a failure, however it ends.
func TestOrderedStopIsNoFailure(t *testing.T) {
	g := runners("odd", 1, "--behavior", "hang")
	g.Restart.Policy, g.Restart.MinBackoff, g.Restart.CrashLimit = launcher.OnFailure, time.Hour, 1
	g.Shutdown.Grace, g.Shutdown.SIGTERMTimeout = 10*time.Millisecond, 10*time.Millisecond
	h := launch(t, g).ready()
	if err := h.StopProcess("odd-1", launcher.Stop{Reason: "the operator's"}); err != nil {
		t.Fatal(err)
	}
	st, err := h.Wait(t.Context(), "odd-1")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "state", st.State, launcher.Forced)
	h.ready()
	health, err := h.GroupHealth("odd")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "desired", health.Desired, 1)
	equal(t, "message", health.Message, "")
}
