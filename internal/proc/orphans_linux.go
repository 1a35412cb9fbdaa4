package proc

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A program that is killed cannot end the processes that its own processes have started. So other
// programs that use this package do that, when they start a process. They recognize the processes
// and the cgroups of a dead program by its owner value, which is part of the mark of each process
// and of the name of each cgroup.

// An owner identifies a program among all that have run since boot.
type owner struct {
	pid   int
	start uint64 // start time of the program in clock ticks since boot
	ns    string // the namespaces in which pid and start are valid
}

func (o owner) String() string { return fmt.Sprintf("%d-%d-%s", o.pid, o.start, o.ns) }

// parseOwner returns the owner in a text that begins with it and ends with a random word.
func parseOwner(text string) (o owner, ok bool) {
	parts := strings.Split(text, "-")
	if len(parts) != 4 {
		return o, false
	}
	o.ns = parts[2]
	o.pid, _ = strconv.Atoi(parts[0])
	o.start, _ = strconv.ParseUint(parts[1], 10, 64)
	return o, true
}

// thisOwner returns the owner of the containers that this program makes.
var thisOwner = sync.OnceValue(func() owner {
	self, _ := stat(os.Getpid())
	if pid, _ := os.Readlink("/proc/self"); pid != strconv.Itoa(os.Getpid()) {
		// The mounted /proc is that of another pid namespace, where this pid is another process. So
		// do not use the start time that stat has read there.
		self.start = 0
	}
	// The targets of the links are texts such as pid:[4026531836] and time:[4026531834]. In another
	// time namespace, the start time of the same program is a different number.
	pids, _ := os.Readlink("/proc/self/ns/pid")
	times, _ := os.Readlink("/proc/self/ns/time")
	return owner{os.Getpid(), self.start, strings.Trim(pids, "pid:[]") + "." + strings.Trim(times, "time:[]")}
})

// newMark returns the mark of a new container. If bound is true, the processes of the container
// must not outlive this program. Then the mark names this program as the owner. When this program
// has died, killOrphanProcesses finds these processes by the owner in their mark.
func newMark(bound bool) string {
	if bound {
		return thisOwner().String() + "-" + rand.Text()
	}
	return rand.Text()
}

// isDead reports whether the program is known to have ended. A zombie has ended: in a container
// without an init process it may stay for ever. Nothing is known about programs in other pid or
// time namespaces. A failure to read /proc, for example because no file descriptor is free, does
// not prove that the program has ended.
func (o owner) isDead() bool {
	if o.ns != thisOwner().ns || o.start == 0 || thisOwner().start == 0 {
		return false
	}
	if syscall.Kill(o.pid, 0) == syscall.ESRCH {
		return true
	}
	now, ok := stat(o.pid)
	return ok && (now.zombie || now.start != o.start) // if the start times differ, the pid has been reused
}

// removeOrphanCgroups removes the cgroups below base whose owners, programs like this one, have
// died. If a cgroup is bound to its owner, removeOrphanCgroups first kills the processes in it: the
// kernel has killed the leader when the owner died (see Spec.ParentDeath), but not the processes
// that the leader had started. The kernel refuses to remove a cgroup that still contains processes.
func removeOrphanCgroups(base string) {
	dirs, _ := filepath.Glob(filepath.Join(base, cgroupPrefix+"*"))
	own := cgroupPrefix + thisOwner().String() + "-"
	for _, dir := range dirs {
		name := filepath.Base(dir)
		rest, bound := strings.CutSuffix(strings.TrimPrefix(name, cgroupPrefix), boundSuffix)
		if o, ok := parseOwner(rest); strings.HasPrefix(name, own) || !ok || !o.isDead() {
			continue
		}
		if bound {
			killCgroup(dir)
		}
		removeCgroups(dir)
	}
}

// killCgroup kills the processes in a cgroup whose owner has died. It waits 100 ms for the
// processes to end. If a process is blocked in the kernel for longer, the next start of a process
// tries again.
func killCgroup(path string) {
	if g := openCgroup(path); g != nil {
		defer g.dir.Close()
		g.kill()
		g.awaitEmpty(100 * time.Millisecond)
	}
}

// killOrphanProcesses kills the processes of this user that are bound to a program that has died.
// Only the last mark of a process counts, that of its own container: if one program that uses this
// package has started another one, and only the first one has died, the processes of the second one
// are left alone. This program itself may be bound to a dead program. It then goes on until another
// program kills it, because a program that killed itself would seem to have crashed without a
// reason. killOrphanProcesses does not wait for the processes to end. It reads all of /proc, so a
// program does it only once.
var killOrphanProcesses = sync.OnceFunc(func() { killOrphansIn(pids) })

// killOrphansIn looks at the processes whose pids the function list returns. A process may have
// started others after that, before it was killed. So killOrphansIn looks again until it has killed
// no further process.
func killOrphansIn(list func() []int) {
	killed := map[processID]bool{}
	for scans, before := 0, -1; scans < maxScans && len(killed) > before; scans++ {
		before = len(killed)
		for _, m := range orphansIn(list()) {
			m.signal(syscall.SIGKILL)
			killed[processID{m.PID, m.start}] = true
		}
	}
}

// orphansIn returns those of the processes with the given pids that killOrphanProcesses kills.
func orphansIn(pids []int) (found []Member) {
	for _, pid := range pids {
		if !mayHaveMark(pid) {
			continue
		}
		m, ok := stat(pid)
		if !ok || pid == os.Getpid() || m.kernel || m.zombie || !m.isOfThisUser() {
			continue
		}
		env, _ := environ(pid)
		marks := marksIn(strings.Split(string(env), "\x00"))
		if len(marks) == 0 {
			continue
		}
		if o, bound := parseOwner(marks[len(marks)-1]); bound && o.isDead() {
			found = append(found, m)
		}
	}
	return found
}

// mayHaveMark reports whether the environment of a process may contain a mark. For most processes
// of a machine the answer is no, so orphansIn reads one file of them instead of three. An empty
// environment may be that of a process whose main thread has ended; then orphansIn must look at the
// other threads, as environ does.
func mayHaveMark(pid int) bool {
	env, err := readFile(procFile(pid, "environ"))
	return !errors.Is(err, fs.ErrPermission) && (len(env) == 0 || bytes.Contains(env, []byte(markKey+"=")))
}
