package upgrade_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
	"github.com/swansong-go/swansong/launcher/internal/upgrade"
)

// A program that does not understand the state of the processes reads the rest of the handoff, so
// that it can go back.
func TestTake_ReturnsRestOfHandoffIfStateHasUnknownField(t *testing.T) {
	// In the JSON of a Handoff, Kept comes after State, as the numbers of the open files do.
	lines := map[string][2][]byte{"web-1": {[]byte("half a line"), nil}}
	text, err := json.Marshal(upgrade.Handoff{Version: upgrade.Version, Dir: "/d", State: statefile.State{Containment: proc.Containment{Mark: "m"}}, Kept: lines})
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(strings.Replace(string(text), `"containment"`, `"containments"`, 1)); err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Dup(int(file.Fd())) // Take takes over this descriptor
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SWANSONG_UPGRADE", fmt.Sprintf("%d:%d", fd, os.Getpid()))
	taken, err := upgrade.Take("/d")
	if err == nil || !strings.Contains(err.Error(), `unknown field "containments"`) {
		t.Fatalf("Take: %v", err)
	}
	testkit.Equal(t, "lines", taken.Kept, lines)
}
