package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// mainCgroup is the name of the cgroup that this program moves itself into, with the processes that
// it has started in its own cgroup, such as a guardian. The kernel enables controllers for the
// children of a cgroup only if that cgroup itself contains no process.
const mainCgroup = "swansong.main"

func (l Limits) controllers() (names []string) {
	if l.Memory > 0 {
		names = append(names, "memory")
	}
	if l.CPUs > 0 {
		names = append(names, "cpu")
	}
	return names
}

// CheckLimits returns an error if this program cannot start processes with these limits. It changes
// nothing.
func CheckLimits(l Limits) error {
	if !l.areSet() {
		return nil
	}
	base := ownCgroup()
	if base == "" {
		return errors.New("this system has no cgroups of version 2")
	}
	for _, name := range l.controllers() {
		if !slices.Contains(words(base, "cgroup.controllers"), name) {
			return fmt.Errorf("the cgroup %s does not have the controller %s; under systemd, use Delegate=yes", base, name)
		}
	}
	if syscall.Access(filepath.Join(base, "cgroup.subtree_control"), 2) != nil || syscall.Access(base, 2) != nil {
		return fmt.Errorf("this user may not change the cgroup %s; under systemd, use Delegate=yes", base)
	}
	if enabled(base, l.controllers()) && !isThreaded(base) {
		return nil
	}
	for _, pid := range words(base, "cgroup.procs") {
		if isInnerCgroup(base) && !isOwn(pid) {
			return fmt.Errorf("the cgroup %s has other processes, such as pid %s; start this program in a cgroup of its own, as systemd does", base, pid)
		}
	}
	return nil
}

// isOwn reports whether a process is this program, one of its children, or has been started by this
// package, possibly in a program that has died.
func isOwn(pid string) bool {
	n, _ := strconv.Atoi(pid)
	m, ok := stat(n)
	return !ok || n == os.Getpid() || m.PPID == os.Getpid() || len(marksOf(m)) > 0
}

// words returns the words in a file of a cgroup.
func words(cgroup, file string) []string {
	text, _ := os.ReadFile(filepath.Join(cgroup, file))
	return strings.Fields(string(text))
}

func enabled(cgroup string, controllers []string) bool {
	on := words(cgroup, "cgroup.subtree_control")
	return !slices.ContainsFunc(controllers, func(name string) bool { return !slices.Contains(on, name) })
}

// isInnerCgroup reports whether a cgroup is not the root cgroup. Only the root cgroup may contain
// both processes and cgroups with controllers.
func isInnerCgroup(cgroup string) bool {
	_, err := os.Stat(filepath.Join(cgroup, "cgroup.type"))
	return err == nil
}

// isThreaded reports whether a cgroup contains processes although a controller is enabled in it
// that can also limit single threads, such as the controller of CPU time. As long as both are the
// case, the kernel lets no process enter a child of that cgroup (EOPNOTSUPP).
func isThreaded(cgroup string) bool {
	return slices.Equal(words(cgroup, "cgroup.type"), []string{"domain", "threaded"})
}

// enabling is locked by enable. If two processes with limits are started at the same time, both
// calls of enable could find the cgroup threaded. The second call would then disable the controller
// of CPU time after the first process has got its limit, and the kernel would forget that limit.
var enabling sync.Mutex

// enable enables controllers for the children of a cgroup. If this program is in that cgroup, and
// it is not the root cgroup, enable first moves the program into mainCgroup.
//
// The kernel refuses to enable the controller of memory while the cgroup contains processes
// (EBUSY), but not that of CPU time: the cgroup becomes threaded (see isThreaded). So enable moves
// the processes before it asks the kernel. If another program has enabled such a controller before,
// enable disables it for the time of the move, which the kernel would refuse otherwise. It enables
// that controller again even if the move fails. Limits that children of the cgroup had are lost.
func enable(cgroup string, controllers []string) error {
	enabling.Lock()
	defer enabling.Unlock()
	moves := cgroup == ownCgroup() && isInnerCgroup(cgroup)
	switch on := words(cgroup, "cgroup.subtree_control"); {
	case moves && isThreaded(cgroup) && len(on) > 0:
		if err := control(cgroup, "-", on); err != nil {
			return err
		}
		// a controller can be in both lists
		both := slices.Compact(slices.Sorted(slices.Values(slices.Concat(on, controllers))))
		err := moveAndEnable(cgroup, both)
		if err == nil {
			return nil
		}
		if again := control(cgroup, "+", on); again != nil {
			err = fmt.Errorf("%w; the cgroup %s has lost the controllers %s, which cannot be enabled again: %w", err, cgroup, strings.Join(on, " "), again)
		}
		return err
	case enabled(cgroup, controllers):
		return nil
	case moves:
		return moveAndEnable(cgroup, controllers)
	}
	return control(cgroup, "+", controllers)
}

// moveAndEnable moves this program out of a cgroup and enables controllers there. A process can
// start another one while the processes are being moved, so moving all of them may take several
// attempts.
func moveAndEnable(cgroup string, controllers []string) error {
	for tries := 1; ; tries++ {
		if err := moveDown(cgroup); err != nil {
			return err
		}
		err := control(cgroup, "+", controllers)
		if tries == 10 || !errors.Is(err, syscall.EBUSY) {
			return err
		}
	}
}

// control enables controllers for the children of a cgroup, with the sign "+", or disables them,
// with "-".
func control(cgroup, sign string, controllers []string) error {
	return writeFile(filepath.Join(cgroup, "cgroup.subtree_control"), sign+strings.Join(controllers, " "+sign))
}

// writeFile writes to a file of a cgroup. Tests replace it to record the writes, and to refuse some
// as the kernel does.
var writeFile = func(path, text string) error { return os.WriteFile(path, []byte(text), 0) }

// moveDown moves this program, and then the processes that it has started in its own cgroup, from
// that cgroup into mainCgroup below it. Processes that this program starts from then on begin in
// mainCgroup.
func moveDown(cgroup string) error {
	below := filepath.Join(cgroup, mainCgroup)
	os.Mkdir(below, 0o755)
	for _, pid := range append([]string{strconv.Itoa(os.Getpid())}, words(cgroup, "cgroup.procs")...) {
		if !isOwn(pid) {
			continue
		}
		// ESRCH: the process has ended since it was listed, so it need not be moved.
		if err := writeFile(filepath.Join(below, "cgroup.procs"), pid); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

// newLimitedCgroup makes a cgroup as newCgroup does, and sets the limits l for it.
func newLimitedCgroup(base string, bound bool, l Limits) (*cgroup, error) {
	if err := CheckLimits(l); err != nil {
		return nil, err
	}
	for _, cgroup := range slices.Compact([]string{ownCgroup(), base}) {
		if err := enable(cgroup, l.controllers()); err != nil {
			return nil, err
		}
	}
	g := newCgroup(base, bound)
	if g == nil {
		return nil, fmt.Errorf("no cgroup could be made in %s", base)
	}
	for file, value := range l.files() {
		if err := os.WriteFile(filepath.Join(g.path, file), []byte(value), 0); err != nil {
			g.remove()
			return nil, err
		}
	}
	return g, nil
}

// files returns, by name, the content of the cgroup files that set the limits. When the cgroup
// reaches its memory limit, the kernel kills all its processes, so that no process is left without
// the others.
func (l Limits) files() map[string]string {
	const period = 100_000 // the period of the limit of CPU time, in microseconds
	files := map[string]string{}
	if l.Memory > 0 {
		files["memory.max"], files["memory.oom.group"] = strconv.FormatInt(l.Memory, 10), "1"
	}
	if l.CPUs > 0 {
		files["cpu.max"] = fmt.Sprintf("%d %d", max(int64(l.CPUs*period), 1000), period)
	}
	return files
}

// ranOutOfMemory reports whether the kernel has killed a process of the cgroup at its limit of
// memory.
func (g *cgroup) ranOutOfMemory() bool {
	events := words(g.path, "memory.events")
	i := slices.Index(events, "oom_kill")
	return i >= 0 && i+1 < len(events) && events[i+1] != "0"
}
