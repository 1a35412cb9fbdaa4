package launcher_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/swansong-go/swansong/launcher"
)

// A launcher that dies between making a cgroup and having somebody in it leaves that to the next one, which removes it.
func TestNoCgroupStays(t *testing.T) {
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
			t.Errorf("the cgroup of %s is still there: %s", whose, cgroups[i])
			os.Remove(cgroups[i])
		}
	}
}

// An enclosure is a cgroup for launchers to be in, so that all that they make can be seen.
type enclosure struct{ dir *os.File }

// enclose makes one; where that cannot be done, one of which nothing is seen.
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

// holds returns what has been made in it and not removed.
func (e enclosure) holds() (names []string) {
	if e.dir == nil {
		return nil
	}
	names, _ = filepath.Glob(filepath.Join(e.dir.Name(), "swansong-*"))
	return names
}
