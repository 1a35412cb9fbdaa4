//go:build unix

package launcher_test

import (
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
)

// A user stops a process that is to be replaced. It is replaced at once, however it ends, and does
// not count as failed.
func TestStopProcess_DoesNotCountAsFailure(t *testing.T) {
	g := runners("odd", 1, "--behavior", "hang")
	g.Restart.Policy, g.Restart.MinBackoff, g.Restart.CrashLimit = launcher.OnFailure, time.Hour, 1
	g.Shutdown.Grace, g.Shutdown.GraceEnforced, g.Shutdown.SIGTERMTimeout = 10*time.Millisecond, true, 10*time.Millisecond
	h := launch(t, g).ready()
	if err := h.StopProcess("odd-1", launcher.Stop{Reason: "the operator's"}); err != nil {
		t.Fatal(err)
	}
	st, err := h.Wait(t.Context(), "odd-1")
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "state", st.State, launcher.Forced)
	h.ready()
	health, err := h.GroupHealth("odd")
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "desired", health.Desired, 1)
	testkit.Equal(t, "message", health.Message, "")
}
