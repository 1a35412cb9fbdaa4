//go:build unix

package guardian

import (
	"fmt"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/proc"
)

// A guardian of another version does not understand all orders, or cannot read the state file, so
// the launcher refuses it.
func TestStart_RefusesGuardianOfAnotherVersion(t *testing.T) {
	for _, answer := range []string{"guarding", "guarding, version 2", "guarding, version 2, state file version 1"} {
		g, err := Start(Config{
			Args:   []string{"sh", "-c", "read orders; echo " + answer + "; cat"},
			Orders: Orders{Self: NewContainment()}, Secrets: func() []string { return nil }, Unrecorded: func() []proc.Containment { return nil },
		})
		if err == nil {
			g.Dismiss()
		}
		want := fmt.Sprintf(`it printed %q instead of "guarding, version 2, state file version 2"; its program has to call launcher.Guard of the same version`, answer)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Start: %v, want: %s", err, want)
		}
	}
}
