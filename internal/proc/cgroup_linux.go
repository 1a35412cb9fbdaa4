package proc

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A cgroup is a control group (version 2) that contains one leader, which is the process that Start
// has started, and the processes that the leader starts. Without privileges a process cannot leave
// the cgroup. The kernel kills all processes in it atomically, however fast they fork.
type cgroup struct {
	path string
	dir  *os.File
}

// newCgroup creates a cgroup below base. It returns nil if that is not possible: with cgroups of
// version 1, without permission, or before Linux 5.14, which has no cgroup.kill. If the parameter
// bound is true, the processes in the cgroup must not outlive this program.
func newCgroup(base string, bound bool) *cgroup {
	if base == "" {
		return nil
	}
	path := nameCgroup(base)
	if bound {
		path += boundSuffix
	}
	return makeCgroup(path)
}

// nameCgroup returns the path of a new cgroup below base. Its name tells which program owns it, so
// that other programs can remove it once that program has died.
func nameCgroup(base string) string {
	return filepath.Join(base, cgroupPrefix+thisOwner().String()+"-"+rand.Text())
}

const (
	cgroupPrefix = "swansong-"
	// boundSuffix ends the name of a cgroup whose processes must not outlive the program that made
	// it.
	boundSuffix = "-bound"
)

// makeCgroup makes a cgroup. It also removes cgroups in the same directory that were made by
// programs that have died.
func makeCgroup(path string) *cgroup {
	removeOrphanCgroups(filepath.Dir(path))
	if os.Mkdir(path, 0o755) != nil {
		return nil
	}
	if g := openCgroup(path); g != nil {
		return g
	}
	os.Remove(path)
	return nil
}

// openCgroup opens an existing cgroup. It returns nil if it does not exist or has no cgroup.kill.
func openCgroup(path string) *cgroup {
	if _, err := os.Stat(filepath.Join(path, "cgroup.kill")); err != nil {
		return nil
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil
	}
	return &cgroup{path, dir}
}

// ownCgroup returns the path at which the cgroup of this process is mounted, or "" if there is
// none. If this program has moved itself into mainCgroup, ownCgroup returns the parent of
// mainCgroup.
var ownCgroup = sync.OnceValue(func() string {
	path := cgroupOf("/proc/self/cgroup")
	if filepath.Base(path) == mainCgroup {
		return filepath.Dir(path)
	}
	return path
})

// cgroupOf returns the path at which the cgroup in a file such as /proc/self/cgroup is mounted, or
// "" if there is none.
func cgroupOf(file string) string {
	own, ok := lineOf(file, func(line string) (string, bool) { return strings.CutPrefix(line, "0::") })
	if !ok {
		return ""
	}
	path, _ := lineOf("/proc/self/mountinfo", func(line string) (string, bool) {
		mount, kind, _ := strings.Cut(line, " - ")
		f := strings.Fields(mount)
		if !strings.HasPrefix(kind, "cgroup2 ") || len(f) < 5 {
			return "", false
		}
		below, ok := strings.CutPrefix(own, strings.TrimSuffix(f[3], "/"))
		return filepath.Join(f[4], below), ok
	})
	return path
}

// lineOf calls f for each line of the named file until f accepts one, and returns the result of f
// for that line.
func lineOf(name string, f func(line string) (string, bool)) (string, bool) {
	file, err := os.Open(name)
	if err != nil {
		return "", false
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if s, ok := f(lines.Text()); ok {
			return s, true
		}
	}
	return "", false
}

// pids returns the processes in the cgroup and in all cgroups below it.
func (g *cgroup) pids() (pids []int) {
	filepath.WalkDir(g.path, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		text, _ := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		for line := range strings.Lines(string(text)) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}

func (g *cgroup) kill() { os.WriteFile(filepath.Join(g.path, "cgroup.kill"), []byte("1"), 0) }

// emptyTimeout is how long remove waits for the processes in the cgroup to end. The comment above
// killTimeout shows this limit together with the other ones.
const emptyTimeout = time.Second

// remove removes the cgroup and all cgroups below it. The kernel refuses to remove one that still
// contains processes.
func (g *cgroup) remove() {
	g.dir.Close()
	g.awaitEmpty(emptyTimeout)
	removeCgroups(g.path)
}

func removeCgroups(root string) {
	var dirs []string
	filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	for i := len(dirs) - 1; i >= 0; i-- {
		os.Remove(dirs[i])
	}
}

// awaitEmpty waits until the cgroup contains no process. This may take a moment even after all
// processes have been waited for, because a process leaves its cgroup shortly after its exit is
// reported.
func (g *cgroup) awaitEmpty(limit time.Duration) {
	f, err := os.Open(filepath.Join(g.path, "cgroup.events"))
	if err != nil {
		return
	}
	defer f.Close()
	for end := time.Now().Add(limit); ; {
		var text [256]byte
		n, _ := f.ReadAt(text[:], 0)
		left := time.Until(end)
		if !bytes.Contains(text[:n], []byte("populated 1")) || left <= 0 {
			return
		}
		poll(f.Fd(), pollPri, left)
	}
}

// Cgroups returns the paths of the cgroups that this program has made and not removed.
func Cgroups() []string {
	paths, _ := filepath.Glob(filepath.Join(ownCgroup(), cgroupPrefix+thisOwner().String()+"-*"))
	return paths
}
