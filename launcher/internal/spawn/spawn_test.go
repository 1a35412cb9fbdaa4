package spawn_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/launcher/internal/spawn"
)

// Variables that address the launcher are not passed to its processes. Otherwise a process would
// serve its health at the launcher's port, or take the launcher's grace period for its own.
func TestInheritedEnv_OmitsVariablesMeantForLauncher(t *testing.T) {
	got := spawn.InheritedEnv([]string{"PATH=/bin", "SWANSONG_HEALTH_PORT=50051", "TERMINATION_GRACE_PERIOD_SECONDS=600", "NOTIFY_SOCKET=/n", "SWANSONG_DIR=/d",
		"SWANSONG_ON_LAUNCHER_DEATH=keep", "HOME=/"})
	if diff := cmp.Diff([]string{"PATH=/bin", "HOME=/"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
