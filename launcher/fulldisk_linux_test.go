package launcher_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/internal/mtls/mtlstest"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

// A disk is the directory of a launcher that a test can fill up. It is a small tmpfs, or if the
// test may not mount one, a directory in which the state file is obstructed instead.
type disk struct {
	t   *testing.T
	dir string
	own bool // the directory is a tmpfs, a file system of its own
}

func newDisk(t *testing.T) disk {
	t.Helper()
	d := disk{t: t, dir: shortDir(t)}
	err := syscall.Mount("tmpfs", d.dir, "tmpfs", 0, "size=256k,mode=0700")
	switch {
	case err == nil:
		d.own = true
		t.Cleanup(func() { syscall.Unmount(d.dir, syscall.MNT_DETACH) })
	case !errors.Is(err, os.ErrPermission):
		t.Fatal(err)
	}
	return d
}

// fill fills the disk, and keeps it full while files shrink or are removed, until free is called.
func (d disk) fill() (free func()) {
	d.t.Helper()
	if !d.own {
		return obstruct(d.t, d.dir)
	}
	path := filepath.Join(d.dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		d.t.Fatal(err)
	}
	page := bytes.Repeat([]byte("x"), os.Getpagesize())
	full, stop, stopped := make(chan bool), make(chan bool), make(chan bool)
	go func() {
		defer close(stopped)
		tick := time.NewTicker(100 * time.Microsecond)
		defer tick.Stop()
		for first := true; ; {
			for err = nil; err == nil; _, err = f.Write(page) {
			}
			if first {
				first = false
				close(full)
			}
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	}()
	<-full
	return func() {
		close(stop)
		<-stopped
		if err := errors.Join(f.Close(), os.Remove(path)); err != nil {
			d.t.Error(err)
		}
	}
}

// awaitProcess waits until the brood has a process with this id, and returns its pid.
func (b brood) awaitProcess(t *testing.T, id string) int {
	t.Helper()
	for late := time.Now().Add(tooLong); time.Now().Before(late); time.Sleep(time.Millisecond) {
		for _, pid := range b.alive() {
			env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			if bytes.Contains(env, []byte("SWANSONG_PROCESS_ID="+id+"\x00")) {
				return pid
			}
		}
	}
	t.Fatalf("%s is not started", id)
	return 0
}

// waitUntilReady waits until a process is ready, and fails at once if the process ends before.
func (h *harness) waitUntilReady(id string) {
	h.t.Helper()
	e := h.readUntil(id+" is ready", func(e launcher.Event) bool { return e.Process == id && (e.To == launcher.Ready || e.To.Ended()) })
	if e.To != launcher.Ready {
		h.t.Fatalf("%s has ended\n%s", id, h.story())
	}
}

// startsDespite waits until the process with this id, of the group web, is ready. Its start must
// raise an alarm with a message that begins with want. startsDespite returns the health of the
// group.
func (h *harness) startsDespite(id, want string) launcher.Health {
	h.t.Helper()
	alarm := h.readUntil("an alarm of "+id, func(e launcher.Event) bool {
		return e.Process == id && (e.Kind == launcher.Alarm || e.To.Ended())
	})
	if !strings.HasPrefix(alarm.Message, want) {
		h.t.Fatalf("the alarm is %q, want %q", alarm.Message, want)
	}
	h.waitUntilReady(id)
	health, err := h.GroupHealth("web")
	if err != nil {
		h.t.Fatal(err)
	}
	return health
}

// A kept process that crashes while the disk is full is replaced. An alarm and the health of the
// group say that the next launcher cannot adopt its replacement. When there is room again, the
// replacement is in the state file without a restart.
func TestStateFile_FullDiskDoesNotPreventReplacementOfCrashedProcess(t *testing.T) {
	d := newDisk(t)
	h := launchWith(t, launcher.Config{Dir: d.dir, Guardian: guardianCommand, Groups: []launcher.GroupConfig{kept(runners("web", 1)), runners("other", 1)}}).ready()
	free := d.fill()
	kill(t, h.running("web")[0].PID)
	health := h.startsDespite("web-2", "started although the state file cannot be written: until it can be written, this process ends with the launcher")
	testkit.Equal(t, "processes that are not in the file", health.Unrecorded, []string{"web-2"})
	testkit.Equal(t, "message", health.Message, "the next launcher cannot adopt web-2, because the state file cannot be written")
	other, _ := h.GroupHealth("other")
	testkit.Equal(t, "processes that are not in the file, of a group that is not kept", other.Unrecorded, []string(nil))
	pids := pidsOf(h, "web")

	free()
	h.readUntil("the end of the alarm", func(e launcher.Event) bool { return e.Kind == launcher.AllClear })
	if health, _ = h.GroupHealth("web"); health.Unrecorded != nil || health.Message != "" {
		t.Errorf("after the end of the alarm, not in the file: %v; message %q", health.Unrecorded, health.Message)
	}
	awaitInFile(t, statefile.Path(h.dir), `"web-2"`)
	testkit.Equal(t, "pids", pidsOf(h, "web"), pids)
	testkit.Equal(t, "alarms", h.count(launcher.Alarm), 2)
}

// A launcher dies. A kept process that was started while the disk was full ends with it if the disk
// is still full, so that no other launcher starts one beside it. If there was room in the meantime,
// the next launcher adopts it.
func TestStateFile_ProcessMissingBecauseDiskIsFullEndsWithLauncher(t *testing.T) {
	for name, room := range map[string]bool{"the disk is still full": false, "there is room again": true} {
		t.Run(name, func(t *testing.T) {
			b, d := newBrood(t), newDisk(t)
			cfg := launcher.Config{Dir: d.dir, Guardian: guardianCommand, Groups: []launcher.GroupConfig{kept(b.of(runners("web", 1)))}}
			first := startAnother(t, cfg, "").checkLine("ready")
			free := d.fill()
			kill(t, b.awaitProcess(t, "web-1"))
			pid := b.awaitProcess(t, "web-2")
			if room {
				free()
				awaitInFile(t, statefile.Path(d.dir), fmt.Sprintf(`"pid":%d,`, pid))
			}
			first.kill()
			if !room {
				awaitEnd(t, pid, tooLong)
				free()
			}
			h := launchWith(t, cfg)
			h.waitForState("web-2", launcher.Ready)
			testkit.Equal(t, "the process is adopted", pidsOf(h, "web")[0] == pid, room)
			testkit.Equal(t, "processes", len(b.alive()), 1)
		})
	}
}

// A launcher starts although the disk is full, adopts the processes that an earlier launcher left
// running, and writes the state file when there is room.
func TestStart_SucceedsWithAlarmWhenDiskIsFull(t *testing.T) {
	b, d := newBrood(t), newDisk(t)
	cfg := launcher.Config{Dir: d.dir, Guardian: guardianCommand, Groups: []launcher.GroupConfig{kept(b.of(runners("web", 1)))}}
	startAnother(t, cfg, "").checkLine("ready").kill()
	pids := b.alive()
	free := d.fill()
	cfg.Groups = append(cfg.Groups, b.of(runners("other", 1)))
	h := launchWith(t, cfg).ready()
	testkit.Equal(t, "pids", pidsOf(h, "web"), pids)
	testkit.Equal(t, "Stats.StateFailing", h.Stats().StateFailing, true)
	free()
	h.readUntil("the end of the alarm", func(e launcher.Event) bool { return e.Kind == launcher.AllClear })
	awaitInFile(t, statefile.Path(d.dir), `"other-1"`)
}

// A process that the launcher reaches over TCP is also replaced while the disk is full. The
// launcher cannot record the port that the new process reports.
func TestStateFile_FullDiskDoesNotPreventReplacementOfProcessUsingTCP(t *testing.T) {
	d := newDisk(t)
	g := kept(overTCP(runners("web", 1), launcher.TLS(mtlstest.New(t).Issue(t, "web"))))
	h := launchWith(t, launcher.Config{Dir: d.dir, Guardian: guardianCommand, Groups: []launcher.GroupConfig{g}}).ready()
	free := d.fill()
	kill(t, h.running("web")[0].PID)
	h.waitUntilReady("web-2")
	free()
	h.readUntil("the end of the alarm", func(e launcher.Event) bool { return e.Kind == launcher.AllClear })
}

// If the launcher cannot make the pipes for the output of a kept process, for example because the
// disk has no inode left, the process is started nevertheless. An alarm says that it ends with the
// launcher.
func TestLauncherDeath_KeptProcessStartsEvenIfOutputPipesCannotBeMade(t *testing.T) {
	for _, stream := range []string{"out", "err"} {
		t.Run(stream, func(t *testing.T) {
			b := newBrood(t)
			cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{kept(b.of(runners("web", 1)))}}
			h := launchWith(t, cfg).ready()
			occupy(t, h.dir, "web-2."+stream)
			kill(t, h.running("web")[0].PID)
			health := h.startsDespite("web-2", "started although the pipes for its output cannot be made: this process ends with the launcher, and the next launcher cannot adopt it: mkfifo ")
			testkit.Equal(t, "processes that end with the launcher", health.Unrecorded, []string{"web-2"})
			testkit.Equal(t, "message", health.Message, "the next launcher cannot adopt web-2, because the pipes for the output could not be made; launcher restart web replaces the processes without pipes")
			env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", h.running("web")[0].PID))
			if err != nil || bytes.Contains(env, []byte("SWANSONG_ON_LAUNCHER_DEATH=keep")) {
				t.Errorf("launcher recover would take the process for a kept one: %q, %v", env, err)
			}
		})
	}
}

// A kept process without pipes for its output ends with its launcher, and the next launcher starts
// another one.
func TestLauncherDeath_ProcessWithoutOutputPipesEndsWithLauncher(t *testing.T) {
	b := newBrood(t)
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{kept(b.of(runners("web", 1)))}}
	first := startAnother(t, cfg, "").checkLine("ready")
	occupy(t, cfg.Dir, "web-2.out")
	kill(t, b.awaitProcess(t, "web-1"))
	pid := b.awaitProcess(t, "web-2")
	awaitInFile(t, statefile.Path(cfg.Dir), fmt.Sprintf(`"pid":%d,`, pid))
	first.kill()
	awaitEnd(t, pid, tooLong)
	h := launchWith(t, cfg).ready()
	testkit.Equal(t, "processes", len(b.alive()), 1)
	testkit.Equal(t, "adopted processes", h.count(launcher.Adopted), 0)
}

// occupy puts a directory that is not empty in the place of a file, so that the file cannot be
// made.
func occupy(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, name, "occupied"), 0o700); err != nil {
		t.Fatal(err)
	}
}
