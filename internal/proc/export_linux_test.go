package proc

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Walk repeats scans of /proc until the result is reliable.
var Walk = walk

const MaxScans = maxScans

// SetNamespace makes this program believe that it is in other namespaces.
func SetNamespace(ns string) {
	o := thisOwner()
	o.ns = ns
	thisOwner = func() owner { return o }
}

// Owner returns the text with which this program marks the processes that must not outlive it.
func Owner() string { return thisOwner().String() }

// AwaitZombie waits until a child of this program has exited, and leaves it a zombie.
func AwaitZombie(pid int) error { return waitid(pid) }

// BornOf returns the time at which a process was started, in clock ticks since boot.
func BornOf(pid int) uint64 {
	m, _ := stat(pid)
	return m.start
}

// KillOrphansIn kills what dead programs have left among the listed processes.
var KillOrphansIn = killOrphansIn

// PIDs returns the pids of all processes.
var PIDs = pids

// OwnerIsDead reports whether the program that a mark names as the owner of a process is known to
// be dead.
func OwnerIsDead(mark string) bool {
	o, ok := parseOwner(mark)
	return ok && o.isDead()
}

// Listed reports whether a new snapshot of /proc contains a process.
func Listed(pid int) bool {
	return slices.ContainsFunc(newSnapshot().all, func(m Member) bool { return m.PID == pid })
}

// Unsure reports whether one scan of /proc finds a process of which the scan cannot tell whether it
// belongs to the container.
func (p *Process) Unsure() bool {
	_, unsure := p.contain.scan()
	return unsure
}

// BlockSearches makes every search for members to signal wait until the test calls release.
func (p *Process) BlockSearches() (release func()) {
	p.search.Lock()
	return p.search.Unlock
}

// SetFirstWait sets how long the goroutine that waits for the process pauses after Kill before it
// searches for members that are still alive. Only Spec.OnLeaderExit may call SetFirstWait, because
// that goroutine calls OnLeaderExit.
func (p *Process) SetFirstWait(d time.Duration) { p.firstWait = d }

// Searches returns how many searches have begun.
func (p *Process) Searches() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.searches
}

// Remember makes the given process a known member.
func (p *Process) Remember(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m, _ := stat(pid)
	p.remember([]Member{m})
}

// NotDone returns a copy of a reaped process whose channel Done is open.
func (p *Process) NotDone() *Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &Process{reaped: p.reaped, exit: p.exit, contain: p.contain, exited: p.exited, done: make(chan struct{}), queued: map[syscall.Signal]bool{}}
}

// SetSlowest makes p believe that its slowest search for members has taken the time d.
func (p *Process) SetSlowest(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slowest = d
}

// EnableCPU enables the controller of CPU time for the children of this program's cgroup.
func EnableCPU() error { return enable(ownCgroup(), Limits{CPUs: 1}.controllers()) }

// EnableMemoryIn checks whether this program can limit memory. Then it enables the memory
// controller for the children of a cgroup. From the call on, the package takes that cgroup for the
// one of this program, and calls write instead of writing to a file of the cgroup. EnableMemoryIn
// returns an error if another goroutine could write at the same time.
func EnableMemoryIn(cgroup string, write func(file, text string) error) error {
	ownCgroup = func() string { return cgroup }
	writeFile = func(path, text string) error {
		if enabling.TryLock() {
			enabling.Unlock()
			return errors.New("the mutex is not locked")
		}
		return write(strings.TrimPrefix(path, cgroup+"/"), text)
	}
	if err := CheckLimits(Limits{Memory: 1}); err != nil {
		return err
	}
	return enable(cgroup, Limits{Memory: 1}.controllers())
}

// HasPidfdInfo reports whether the kernel has a version that tells the exit status of a process
// that is not a child of this program.
func HasPidfdInfo() bool {
	var major, minor int
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	fmt.Sscanf(string(release), "%d.%d", &major, &minor)
	return major > 6 || major == 6 && minor >= 15
}
