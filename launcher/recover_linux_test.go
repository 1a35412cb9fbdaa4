package launcher_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

// damage cuts the state file of a directory off in the middle.
func damage(t *testing.T, dir string) (text []byte) {
	t.Helper()
	text, err := os.ReadFile(statefile.Path(dir))
	if err != nil {
		t.Fatal(err)
	}
	text = text[:len(text)/2]
	if err := os.WriteFile(statefile.Path(dir), text, 0o600); err != nil {
		t.Fatal(err)
	}
	return text
}

// isSetAside checks that path, to which the damaged state file was renamed, says that the file is
// corrupt, and that the file still has this text.
func isSetAside(t *testing.T, dir, path string, text []byte) {
	t.Helper()
	if !strings.HasPrefix(path, statefile.Path(dir)+".corrupt-2") {
		t.Errorf("the damaged file is now %q", path)
	}
	aside, err := os.ReadFile(path)
	if err != nil || string(aside) != string(text) {
		t.Errorf("the damaged file: %q, %v", aside, err)
	}
}

// A state file is damaged while kept processes run without a launcher. Recover writes another one,
// with which the next launcher adopts the same processes and their listener, and rolls them. Until
// then, no launcher starts. A dry run changes nothing.
func TestRecover_NextLauncherAdoptsProcessesAfterRecovery(t *testing.T) {
	b := newBrood(t)
	g := kept(b.of(runners("web", 2)))
	g.Listen = []launcher.Listen{{Name: "http", Address: freeAddress(t)}}
	hooks := filepath.Join(t.TempDir(), "hooks")
	g.Env = append(g.Env, "OWN=of {id}")
	g.PreStop = []launcher.Hook{{Command: []string{"/bin/sh", "-c", `echo "$OWN" > ` + hooks + "-{id}"}, Timeout: time.Minute}}
	cfg := launcher.Config{Dir: shortDir(t), Guardian: briefGuardian, Groups: []launcher.GroupConfig{g}}
	startAnother(t, cfg, "").checkLine("ready").kill()
	pids := []int{b.awaitProcess(t, "web-1"), b.awaitProcess(t, "web-2")}
	text := damage(t, cfg.Dir)

	_, err := launcher.Start(context.Background(), cfg)
	var unusable *launcher.StateError
	if !errors.As(err, &unusable) || !unusable.Damaged {
		t.Fatalf("Start: %v", err)
	}
	for _, pid := range pids {
		if !strings.Contains(err.Error(), fmt.Sprintf("(pid %d)", pid)) || !strings.Contains(err.Error(), "run launcher recover") {
			t.Errorf("the error is %q; pid %d", err, pid)
		}
	}
	preview, err := launcher.Recover(cfg, true)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "set aside by a dry run", preview.SetAside, "")
	if now, _ := os.ReadFile(statefile.Path(cfg.Dir)); string(now) != string(text) {
		t.Errorf("a dry run has changed the file to %q", now)
	}

	found, err := launcher.Recover(cfg, false)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "processes", ids(found.Processes), ids(preview.Processes))
	testkit.Equal(t, "listeners", found.Listeners, map[string]string{"web": "tcp " + g.Listen[0].Address})
	testkit.Equal(t, "damage", found.Damage.Error(), unusable.Cause.Error())
	isSetAside(t, cfg.Dir, found.SetAside, text)

	h := launchWith(t, cfg)
	adopted := map[string]bool{}
	h.readUntil("both are adopted", func(e launcher.Event) bool {
		if e.Kind == launcher.Adopted {
			adopted[e.Process+" "+e.Message] = true
		}
		return len(adopted) == 2
	})
	testkit.Equal(t, "adopted", adopted, map[string]bool{fmt.Sprintf("web-1 pid %d, of revision 1", pids[0]): true, fmt.Sprintf("web-2 pid %d, of revision 1", pids[1]): true})
	h.readUntil("the roll ends", func(e launcher.Event) bool { return e.Kind == launcher.RollDone })
	begun := slices.IndexFunc(h.events, func(e launcher.Event) bool { return e.Kind == launcher.RollBegun })
	testkit.Equal(t, "reason of the roll", h.events[begun].Message, "to revision 2: launcher recover has found processes, and it is not known how they were started")
	testkit.Equal(t, "smallest number of ready processes", leastReady(h), 2)
	testkit.Equal(t, "running", names(h.running("web")), []string{"web-3", "web-4"})
	for _, id := range []string{"web-1", "web-2"} {
		text, err := os.ReadFile(hooks + "-" + id)
		testkit.Equal(t, "error", err, nil)
		testkit.Equal(t, "variable of the hook of "+id, string(text), "of "+id+"\n")
	}
	if err := fetch(&http.Client{Timeout: tooLong}, "http://"+g.Listen[0].Address); err != nil {
		t.Error(err)
	}
}

// ids returns the ids and pids of processes by id.
func ids(all []launcher.Recovered) map[string]int {
	pids := map[string]int{}
	for _, p := range all {
		pids[p.ID] = p.PID
	}
	return pids
}

// Where no group is to be kept, a launcher starts although the state file is damaged. It ends what
// is left of the earlier launcher, whose guardian was killed as well, and says where the file is.
func TestStart_SetsDamagedStateFileAside(t *testing.T) {
	b := newBrood(t)
	g := b.of(clan("web"))
	g.Listen = []launcher.Listen{{Network: "unix", Address: filepath.Join(shortDir(t), "http")}}
	cfg := launcher.Config{Dir: shortDir(t), Groups: []launcher.GroupConfig{g}}
	startAnother(t, cfg, "").checkLine("ready").kill()
	testkit.Equal(t, "descendants of the killed launcher", len(b.alive()) >= 50, true)
	text := damage(t, cfg.Dir)
	cfg.Groups[0] = b.of(runners("web", 1))
	cfg.Groups[0].Listen = g.Listen
	h := launchWith(t, cfg)
	alarm := h.readUntil("an alarm", func(e launcher.Event) bool { return e.Kind == launcher.Alarm })
	said, ok := strings.CutPrefix(alarm.Message, "the state file of an earlier launcher was damaged, and is now ")
	aside, _, _ := strings.Cut(said, ";")
	if !ok {
		t.Errorf("the alarm is %q", alarm.Message)
	}
	isSetAside(t, cfg.Dir, aside, text)
	h.ready()
	testkit.Equal(t, "processes", len(b.alive()), 1)
}

// A launcher whose groups are not to be kept does not start beside processes that an earlier one
// has kept.
func TestStart_RefusesDamagedStateFileOfKeptProcesses(t *testing.T) {
	cfg, pids := orphans(t, kept(runners("web", 1)))
	text := damage(t, cfg.Dir)
	cfg.Groups = []launcher.GroupConfig{runners("web", 1)}
	_, err := launcher.Start(context.Background(), cfg)
	var unusable *launcher.StateError
	if !errors.As(err, &unusable) || unusable.Found != fmt.Sprintf("web-1 (pid %d)", pids[0]) {
		t.Errorf("Start: %v", err)
	}
	if now, _ := os.ReadFile(statefile.Path(cfg.Dir)); string(now) != string(text) {
		t.Errorf("the state file was changed to %q", now)
	}
}

// Recover stops processes of groups that are not configured any more, and ends those that were to
// die with their launcher.
func TestRecover_StopsProcessesOfRemovedAndUnkeptGroups(t *testing.T) {
	b := newBrood(t)
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{kept(b.of(runners("old", 1))), b.of(clan("web"))}}
	killBoth(t, startAnother(t, cfg, "").checkLine("ready"))
	damage(t, cfg.Dir)
	cfg.Groups = []launcher.GroupConfig{b.of(runners("new", 1))}
	r, err := launcher.Recover(cfg, false)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "processes", len(ids(r.Processes)), 1)
	testkit.Equal(t, "processes that were ended", len(r.Ended) >= 50, true)
	testkit.Equal(t, "alive", len(b.alive()), 1)
	h := launchWith(t, cfg)
	testkit.Equal(t, "pid", h.waitForEnd("old-1").PID, ids(r.Processes)["old-1"])
	h.ready()
}

// Recover adds a process to an intact state file that was started while the file could not be
// written, and whose guardian was killed together with the launcher.
func TestRecover_AddsProcessMissingFromStateFile(t *testing.T) {
	b, d := newBrood(t), newDisk(t)
	cfg := launcher.Config{Dir: d.dir, Guardian: guardianCommand, Groups: []launcher.GroupConfig{kept(b.of(runners("web", 1)))}}
	first := startAnother(t, cfg, "").checkLine("ready")
	again, err := launcher.Recover(cfg, true)
	if !errors.Is(err, launcher.ErrInUse) {
		t.Errorf("while a launcher runs: %+v, %v", again, err)
	}
	free := d.fill()
	kill(t, b.awaitProcess(t, "web-1"))
	pid := b.awaitProcess(t, "web-2")
	killBoth(t, first)
	free()
	r, err := launcher.Recover(cfg, false)
	if err != nil || r.Damage != nil || r.SetAside != "" {
		t.Fatalf("%+v, %v", r, err)
	}
	testkit.Equal(t, "processes", ids(r.Processes), map[string]int{"web-2": pid})
	if r, err = launcher.Recover(cfg, false); err != nil || len(r.Processes) > 0 {
		t.Errorf("the second time: %+v, %v", r, err)
	}
	h := launchWith(t, cfg)
	h.readUntil("web-2 is adopted", func(e launcher.Event) bool {
		return e.Kind == launcher.Adopted && e.Message == fmt.Sprintf("pid %d, of revision 1", pid)
	})
	h.ready()
}

// killBoth kills a launcher and its guardian. The guardian has no time to end the processes of the
// launcher.
func killBoth(t *testing.T, a *another) {
	t.Helper()
	all := guardians(t, a.Process.Pid)
	testkit.Equal(t, "guardians", len(all), 1)
	// Freeze the launcher, so that it starts no other guardian. To freeze the guardian would not
	// help: the kernel continues it when its parent, the launcher, ends.
	freeze(t, a.Process.Pid)
	kill(t, all[0])
	awaitEnd(t, all[0], tooLong)
	a.kill()
}

// freeze sends SIGSTOP to a process, and returns when all its threads have stopped. The threads run
// on until the kernel delivers the signal to one of them.
func freeze(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	runs := func() bool {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		return slices.ContainsFunc(threads, func(path string) bool {
			stat, _ := os.ReadFile(path)
			_, state, found := strings.Cut(string(stat), ") ")
			return found && !strings.HasPrefix(state, "T")
		})
	}
	for late := time.Now().Add(tooLong); runs(); time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("process %d does not stop", pid)
		}
	}
}

// A state file of another version, or of another program, is neither set aside nor replaced.
func TestRecover_LeavesStateFileOfAnotherVersionUnchanged(t *testing.T) {
	cfg := launcher.Config{Dir: shortDir(t), Groups: []launcher.GroupConfig{runners("web", 1)}}
	const text = `{"name": "something"}`
	if err := os.WriteFile(statefile.Path(cfg.Dir), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, started := launcher.Start(context.Background(), cfg)
	_, recovered := launcher.Recover(cfg, false)
	for what, err := range map[string]error{"Start": started, "Recover": recovered} {
		var unusable *launcher.StateError
		if !errors.As(err, &unusable) || unusable.Damaged || !strings.Contains(err.Error(), "unsupported format") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if now, _ := os.ReadFile(statefile.Path(cfg.Dir)); string(now) != text {
		t.Errorf("the file was changed to %q", now)
	}
	cfg.Dir = filepath.Join(cfg.Dir, "missing")
	var rule *launcher.ConfigError
	if _, err := launcher.Recover(cfg, false); !errors.As(err, &rule) || rule.Field != "Dir" {
		t.Errorf("without a directory: %v", err)
	}
}

// What a kept process has started, also in a session of its own, is not adopted as if it were a
// process of the group.
func TestRecover_DoesNotAdoptChildrenOfKeptProcess(t *testing.T) {
	b := newBrood(t)
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{kept(b.of(clan("web")))}}
	startAnother(t, cfg, "").checkLine("ready").kill()
	pid := b.awaitProcess(t, "web-1")
	damage(t, cfg.Dir)
	r, err := launcher.Recover(cfg, true)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "number of processes", len(r.Processes), 1)
	testkit.Equal(t, "processes", ids(r.Processes), map[string]int{"web-1": pid})
}
