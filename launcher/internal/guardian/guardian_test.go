//go:build unix

package guardian

import (
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/proc"
)

// A guardian of another version does not understand all orders, so the launcher refuses it.
func TestStart_RefusesGuardianOfAnotherVersion(t *testing.T) {
	g, err := Start(Config{
		Args:   []string{"sh", "-c", "read orders; echo guarding; cat"}, // answers as the guardians of version 1 did
		Orders: Orders{Self: NewContainment()}, Secrets: func() []string { return nil }, Unrecorded: func() []proc.Containment { return nil },
	})
	if err == nil {
		g.Dismiss()
	}
	const want = `it printed "guarding" instead of "guarding, version 2"; its program has to call launcher.Guard of the same version`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Start: %v, want: %s", err, want)
	}
}
