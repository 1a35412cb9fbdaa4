package launcher_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/launcher"
)

// What somebody has told the launcher about itself is not true of its processes: one would serve its health at the launcher's
// port, and another take the launcher's grace period for its own.
func TestProcessesDoNotInheritWhatIsTheLaunchers(t *testing.T) {
	got := launcher.WithoutOurs([]string{"PATH=/bin", "SWANSONG_HEALTH_PORT=50051", "TERMINATION_GRACE_PERIOD_SECONDS=600", "NOTIFY_SOCKET=/n", "HOME=/"})
	if diff := cmp.Diff([]string{"PATH=/bin", "HOME=/"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
