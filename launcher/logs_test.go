//go:build unix

package launcher_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/launcher"
)

// What processes have printed to files of their own is kept as long as they are remembered: a group whose processes end and
// are replaced for ever does not fill the disk. The files of those that run, and of others, are never touched.
func TestLogsOfTheForgottenAreRemoved(t *testing.T) {
	const ending, remembered = 36, 32
	g := group("web", ending, "")
	g.Command = []string{"/bin/sh", "-c", "echo as {id}; echo and again"}
	g.Protocol, g.Restart.Policy = launcher.Signals, launcher.Never
	g.Log.Dir, g.Log.MaxSize = filepath.Join(t.TempDir(), "logs"), 20 // a file for each line
	on := g
	on.Name, on.Desired, on.Command = "on", 1, []string{"/bin/sleep", "3600"}
	h := launch(t, on, g)
	if err := os.WriteFile(filepath.Join(g.Log.Dir, "web-0.log"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ended := map[string]bool{}
	for len(ended) < ending {
		e := h.until("a process ends", func(e launcher.Event) bool { return e.Kind == launcher.Transition && e.To.Ended() })
		ended[e.Process] = true
	}
	h.close()
	health, err := h.GroupHealth("web")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "processes that are remembered", len(health.Processes), remembered)
	want := []string{"on-1", "web-0"}
	for _, p := range health.Processes {
		want = append(want, p.ID)
	}
	slices.Sort(want)
	files, err := filepath.Glob(filepath.Join(g.Log.Dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range files {
		id, _, _ := strings.Cut(filepath.Base(f), ".log")
		got = append(got, id)
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
		t.Errorf("who has files (-want +got):\n%s", diff)
	}
}
