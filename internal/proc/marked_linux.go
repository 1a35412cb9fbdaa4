package proc

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func findMarked(variable string) (found []Marked) {
	adopting.Store(true)
	for range maxScans {
		var unsure bool
		if found, unsure = scanForMarked(variable); !unsure {
			break
		}
		// Poll: no event tells that a process has executed its program and so has an environment.
		time.Sleep(time.Millisecond)
	}
	slices.SortFunc(found, func(a, b Marked) int { return cmp.Or(cmp.Compare(a.Born, b.Born), cmp.Compare(a.PID, b.PID)) })
	return found
}

// scanForMarked searches /proc once for processes that have the variable in their environment. The
// result unsure is true if the environment of some process is not known yet, because that process
// is about to execute its program.
func scanForMarked(variable string) (found []Marked, unsure bool) {
	t := newSnapshot()
	for _, m := range t.all {
		if m.PID == os.Getpid() || m.kernel || m.zombie || !m.isOfThisUser() {
			continue
		}
		text, err := environ(m.PID)
		if err != nil {
			continue
		}
		if len(text) == 0 {
			unsure = unsure || !withoutEnv.settled(m, t.all)
			continue
		}
		env := strings.Split(string(text), "\x00")
		marks := marksIn(env)
		// The environment has a mark for each containment that the process is in, the outermost
		// first. Start has added the last mark, for this process and its descendants only. The mark
		// before that is the mark of the containment in which the process was started.
		if len(marks) < 2 || !slices.Contains(env, variable) {
			continue
		}
		in := Containment{Mark: marks[len(marks)-2], Cgroup: containmentCgroup(m.PID)}
		found = append(found, Marked{Adoptable{in, m.PID, m.start}, m.Command, m.PGID == m.PID, env})
	}
	return found, unsure
}

func (m Member) isOfThisUser() bool {
	info, err := os.Stat(procFile(m.PID, ""))
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// containmentCgroup returns the cgroup of the containment of a process. That is the parent of the
// cgroup of the process. If the name of the parent shows that this package has not made it, the
// result is "".
func containmentCgroup(pid int) string {
	dir := filepath.Dir(cgroupOf(procFile(pid, "cgroup")))
	if !strings.HasPrefix(filepath.Base(dir), cgroupPrefix) {
		return ""
	}
	return dir
}
