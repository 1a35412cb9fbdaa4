package launcher_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

// A launcher dies after it has created a cgroup and before a process is in that cgroup. The next
// launcher removes the cgroup.
func TestNextLauncher_RemovesCgroupsOfKilledLauncher(t *testing.T) {
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{kept(runners("web", 1))}}
	cgroups, err := launcher.DieStarting(cfg.Dir, cfg.Groups[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range cgroups {
		if _, err := os.Stat(name); err != nil {
			t.Skip("no cgroup of version 2 can be made here")
		}
	}
	launchWith(t, cfg).ready()
	for i, whose := range []string{"the launcher", "the process"} {
		if _, err := os.Stat(cgroups[i]); err == nil {
			t.Errorf("the cgroup of %s is left: %s", whose, cgroups[i])
			os.Remove(cgroups[i])
		}
	}
}

// An enclosure is a cgroup in which launchers run, so that a test can list the cgroups that they
// make.
type enclosure struct{ dir *os.File }

// enclose makes an enclosure. If no cgroup can be made, the enclosure lists nothing.
func enclose(t *testing.T) enclosure {
	t.Helper()
	base := launcher.OwnCgroup()
	if base == "" {
		return enclosure{}
	}
	path, err := os.MkdirTemp(base, "launcher-test-")
	if err != nil {
		return enclosure{}
	}
	t.Cleanup(func() { os.Remove(path) })
	if _, err := os.Stat(filepath.Join(path, "cgroup.kill")); err != nil {
		return enclosure{}
	}
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	return enclosure{dir}
}

// holds returns the cgroups in the enclosure that have not been removed.
func (e enclosure) holds() (names []string) {
	if e.dir == nil {
		return nil
	}
	names, _ = filepath.Glob(filepath.Join(e.dir.Name(), "swansong-*"))
	return names
}

// A launcher whose disk hangs at its start returns an error, leaves nothing behind, and can be
// stopped meanwhile. No other launcher writes the file until the disk works again.
func TestStart_ReturnsErrorWhenDiskHangs(t *testing.T) {
	for name, before := range map[string]bool{"with the first state file": true, "with the one that has the guardian": false} {
		t.Run(name, func(t *testing.T) {
			b := newBrood(t)
			cfg := launcher.Config{Dir: shortDir(t), Groups: []launcher.GroupConfig{b.of(runners("web", 1))}}
			next := filepath.Join(cfg.Dir, "state.json.next")
			cfg.Guardian = []string{"/usr/bin/env", string(b), "/bin/sh", "-c", `mkfifo "$1" && exec "$0" guardian`, os.Args[0], next}
			if before {
				hang(t, cfg.Dir)
			}
			above := ctxshutdown.New(context.Background())
			failed := make(chan error, 1)
			go func() {
				_, err := launcher.Start(above, cfg)
				failed <- err
			}()
			// Wait until Start holds a guard: from then on it writes the file, or is about to.
			for above.GuardCount() == 0 {
				select {
				case err := <-failed:
					t.Fatalf("Start failed before the disk hung: %v", err)
				case <-time.After(time.Millisecond):
				}
			}
			above.Shutdown()
			err := <-failed
			if err == nil || !strings.Contains(err.Error(), "not started, because it was stopped before the state file was written: the disk did not write "+statefile.Path(cfg.Dir)) {
				t.Fatalf("got %v", err)
			}
			if err := above.Completion().Wait(soon(t)); err != nil {
				t.Error(err)
			}
			testkit.Equal(t, "processes", len(b.alive()), 0)

			cfg.Guardian = nil
			if _, err := launcher.Start(context.Background(), cfg); !errors.Is(err, launcher.ErrInUse) {
				t.Errorf("another launcher while the disk hangs: %v", err)
			}
			disk, err := os.OpenFile(next, os.O_RDWR, 0) // now the disk works again
			if err != nil {
				t.Fatal(err)
			}
			defer disk.Close()
			lock, err := os.Open(cfg.Dir)
			if err != nil {
				t.Fatal(err)
			}
			defer lock.Close()
			if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
				t.Fatal(err)
			}
			left, err := filepath.Glob(filepath.Join(cfg.Dir, "*"))
			testkit.Equal(t, "what is left", left, []string(nil))
			if err != nil {
				t.Error(err)
			}
		})
	}
}
