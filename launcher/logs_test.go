//go:build unix

package launcher_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
)

// The log file of an ended process is kept for as long as the launcher remembers the process, so a
// group whose processes are replaced for ever does not fill the disk. The files of running
// processes, and files with other names, are never removed.
func TestLogDir_KeepsLogsOfRecentlyEndedProcesses(t *testing.T) {
	const ending, remembered = 36, 32
	g := group("web", ending, "")
	g.Command = []string{"/bin/sh", "-c", "echo as {id}; echo and again"}
	g.Protocol, g.Restart.Policy = launcher.Signals, launcher.Never
	g.Log.Dir, g.Log.MaxSize = filepath.Join(t.TempDir(), "logs"), 20 // with this size, the file is rotated after each line
	on := g
	on.Name, on.Desired, on.Command = "on", 1, []string{"/bin/sleep", "3600"}
	h := launch(t, on, g)
	if err := os.WriteFile(filepath.Join(g.Log.Dir, "web-0.log"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ended := map[string]bool{}
	for len(ended) < ending {
		e := h.readUntil("a process ends", func(e launcher.Event) bool { return e.Kind == launcher.Transition && e.To.Ended() })
		ended[e.Process] = true
	}
	h.close()
	health, err := h.GroupHealth("web")
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "remembered processes", len(health.Processes), remembered)
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
	testkit.Equal(t, "processes with files", slices.Compact(got), want)
}

// Log files of earlier launchers count towards the limit: those of the processes that ended last
// are kept, with their rotated files, and files with other names are not touched. A running process
// appends to the file of its name, however old that is.
func TestLogDir_RemovesFilesOfEarlierLaunchers(t *testing.T) {
	const remembered = 32
	dir := t.TempDir()
	write := func(name string, age time.Duration) {
		t.Helper()
		path, at := filepath.Join(dir, name), time.Now().Add(-age)
		if err := errors.Join(os.WriteFile(path, []byte("before\n"), 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	others := []string{"web.log", "web-0.log", "web-01.log", "web-1-1.log", "web-1.log.gz", "web-x.log", "a-web-1.log", "web-40.logs"}
	for _, name := range others {
		write(name, time.Hour)
	}
	for n := 1; n <= 40; n++ { // web-1 is the oldest log; web-40 is made older below
		write(fmt.Sprintf("web-%d.log", n), time.Duration(50-n)*time.Minute)
	}
	write("web-40.log", time.Hour)
	write("web-40.log.1", 2*time.Hour)
	write("web-9.log.7", 2*time.Hour) // a rotated file whose number is beyond MaxFiles
	write("web-30.log.1", 2*time.Hour)
	g := group("web", 1, "")
	g.Command, g.Protocol, g.Log.Dir = []string{"/bin/sh", "-c", "echo as {id}; exec sleep 3600"}, launcher.Signals, dir
	h := launch(t, g).ready()
	if lines, more, stop, err := h.Printed("web-1", 1); err != nil {
		t.Fatal(err)
	} else if len(lines) == 0 {
		<-more
		stop()
	} else {
		stop()
	}
	h.close()
	want := slices.Concat(others, []string{"web-1.log", "web-30.log.1"})
	for n := 9; n < 40; n++ { // these logs are kept, together with that of web-1, which has ended by now
		want = append(want, fmt.Sprintf("web-%d.log", n))
	}
	want = append(want, "web-9.log.7")
	testkit.Equal(t, "processes whose files are kept", len(want)-len(others)-2, remembered)
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range files {
		got = append(got, f.Name())
	}
	slices.Sort(want)
	testkit.Equal(t, "files", got, want)
	text, err := os.ReadFile(filepath.Join(dir, "web-1.log"))
	if err != nil || !strings.HasSuffix(string(text), "as web-1\n") {
		t.Errorf("web-1.log: %q, %v", text, err)
	}
}

// When a reload changes Log.Dir, old files in the new directory are removed, also if the group has
// used it before.
func TestLogDir_RemovesOldFilesAfterReload(t *testing.T) {
	const remembered = 32
	before, dir := t.TempDir(), t.TempDir()
	for n := range 40 {
		path, at := filepath.Join(dir, fmt.Sprintf("web-%d.log", n+1)), time.Now().Add(-time.Duration(50-n)*time.Minute)
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	g := group("web", 1, "")
	g.Command, g.Protocol, g.Log.Dir = []string{"/bin/sleep", "3600"}, launcher.Signals, before
	h := launch(t, g).ready()
	g.Log.Dir = dir
	if err := h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{g}}, "test"); err != nil {
		t.Fatal(err)
	}
	h.close()
	// web-1 and web-2 are the processes before and after the reload. Earlier processes already had
	// the name of web-2.
	want := []string{"web-1.log", "web-2.log"}
	for n := 41 - (remembered - 2); n <= 40; n++ {
		want = append(want, fmt.Sprintf("web-%d.log", n))
	}
	var got []string
	for _, d := range []string{before, dir} {
		files, err := os.ReadDir(d)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			got = append(got, f.Name())
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	testkit.Equal(t, "files", got, want)
}
