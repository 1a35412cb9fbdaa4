package proc

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A container finds and signals the leader, which is the process that Start has started, and the
// processes that the leader has started.
type container struct {
	process *os.Process // the leader; nil if it is not a child of this process, because another process may have reused its pid
	adopted bool        // an earlier program has started the leader, and this program has adopted it
	pid     int
	start   uint64 // the leader's start time in clock ticks since boot
	pidfd   *os.File
	cgroup  *cgroup // nil if no cgroup could be created
	mark    string
}

// markKey is the environment variable by which the processes that belong together are found. It
// contains a mark, a random text, for each container that a process is in. The idea of recognizing
// processes by their environment comes from Jenkins (ProcessTreeKiller).
const markKey = MarkVariable

func startContained(cmd *exec.Cmd, spec Spec) (*container, error) {
	bound := spec.ParentDeath != 0
	// Processes in a containment, such as those of package launcher, are not killed when this
	// program has died: the next launcher ends or adopts them.
	marksOwner := bound && spec.In.Mark == ""
	c := &container{mark: newMark(marksOwner)}
	env := cmd.Environ()
	own := strings.TrimPrefix(spec.In.Mark+" "+c.mark, " ")
	marks := own
	for _, v := range env {
		if old, ok := strings.CutPrefix(v, markKey+"="); ok {
			// The new process is also in the containers that this process is in, so it has their
			// marks.
			marks = old + " " + own
		}
	}
	cmd.Env = append(env, markKey+"="+marks)

	pidfd := -1
	attr := syscall.SysProcAttr{Setpgid: true, Pdeathsig: spec.ParentDeath, PidFD: &pidfd, Credential: spec.User.credential()}
	plain := *cmd // a copy for a second attempt, because a Cmd can be started only once
	plain.SysProcAttr = &attr
	switch base := cmp.Or(spec.In.Cgroup, ownCgroup()); {
	case spec.Limits.areSet():
		limited, err := newLimitedCgroup(base, bound, spec.Limits)
		if err != nil {
			return nil, fmt.Errorf("the limits of the process cannot be enforced: %w", err)
		}
		c.cgroup = limited
	case !spec.NoCgroup:
		c.cgroup = newCgroup(base, bound)
	}
	if c.cgroup != nil {
		inside := attr
		inside.UseCgroupFD, inside.CgroupFD = true, int(c.cgroup.dir.Fd())
		cmd.SysProcAttr = &inside
		// The start may have failed because of a missing permission on the cgroup, so try again
		// outside of the cgroup, unless there are limits. Any other error occurs again in the
		// second attempt.
		if err := cmd.Start(); err != nil {
			c.cgroup.remove()
			c.cgroup = nil
			if spec.Limits.areSet() {
				return nil, err
			}
		}
	}
	if c.cgroup == nil {
		if marksOwner {
			killOrphanProcesses()
		}
		if err := plain.Start(); err != nil {
			return nil, err
		}
		cmd.Process = plain.Process
	}
	c.process, c.pid = cmd.Process, cmd.Process.Pid
	if pidfd >= 0 {
		c.pidfd = pollable(pidfd)
	}
	// The process exists, at least as a zombie, until this process reaps it.
	if m, ok := stat(c.pid); ok {
		c.start = m.start
	}
	return c, nil
}

func (c *container) name() string {
	if c.cgroup != nil {
		return "cgroup"
	}
	return "walk"
}

func (c *container) lists() bool { return true }

func (c *container) leader() (Member, bool) {
	m, ok := stat(c.pid)
	return m, ok && !m.zombie && c.leads(m)
}

// leads reports whether m is the leader, the process that Start has started. It returns false for a
// later process that has reused the leader's pid.
func (c *container) leads(m Member) bool {
	// The pid of a child cannot be reused before the child has been reaped, so for a child the pid
	// suffices.
	return m.PID == c.pid && (c.process != nil || m.start == c.start)
}

// needsWalk reports whether there may be members that are not in the cgroup. An adopted process
// might not be in its cgroup, because creating or entering the cgroup may have failed.
func (c *container) needsWalk() bool { return c.cgroup == nil || c.adopted }

// near returns the living members that can be found without reading all of /proc: those in the
// cgroup or, if there is none, the descendants of the leader. The result does not include the
// leader. near also reports whether these are all members. The caller ensures that the leader has
// not been reaped.
func (c *container) near() (found []Member, complete bool) {
	if !c.needsWalk() {
		return c.members(), true
	}
	if leader, ok := stat(c.pid); ok && c.leads(leader) {
		found = descendants(c.pid)
	}
	return found, false
}

// members returns the living processes that c holds together, except for the leader, which is the
// process that Start has started.
func (c *container) members() []Member {
	var found []Member
	if c.cgroup != nil {
		for _, pid := range c.cgroup.pids() {
			if m, ok := stat(pid); ok {
				found = append(found, m)
			}
		}
	}
	if c.needsWalk() {
		found = append(found, c.walk()...)
		slices.SortStableFunc(found, func(a, b Member) int { return cmp.Compare(a.PID, b.PID) })
		found = slices.CompactFunc(found, func(a, b Member) bool { return a.PID == b.PID })
	}
	return slices.DeleteFunc(found, func(m Member) bool { return m.zombie || c.leads(m) })
}

// walk finds the process group, the session, the descendants and the marked processes in /proc. One
// reading of /proc (a scan) can miss a process, so walk scans it again
//
//   - if it finds no member: a process that was about to fork may have ended between the listing of
//     /proc and the reading of its entry, and its child is only in the next listing;
//   - while the state of a process is unknown: for some microseconds during an exec a process has
//     no environment, and the child of a double fork then looks unrelated. A process that never had
//     an environment counts as unmarked after some time.
//
// To escape, a process must be missed by several scans in a row. No process escapes from a cgroup.
func (c *container) walk() []Member { return walk(c.scan, c.leads) }

func walk(scan func() (found []Member, unsure bool), leads func(Member) bool) []Member {
	foundNone := false
	for scans := 1; ; scans++ {
		found, unsure := scan()
		others := slices.ContainsFunc(found, func(m Member) bool { return !leads(m) && !m.zombie })
		if !unsure && (others || foundNone) || scans == maxScans {
			return found
		}
		if foundNone = !others; unsure {
			// No event says when the process that may be a member can be recognized, so scan again
			// after a while.
			time.Sleep(time.Millisecond)
		}
	}
}

const maxScans = 20

// scan reads /proc once and returns the members that it finds. The result unsure reports whether a
// process that was not found may be a member nevertheless.
func (c *container) scan() (found []Member, unsure bool) {
	t := newSnapshot()
	all := t.all
	marks := map[int]markState{}
	// The ids of the leader's group and session cannot be reused while the leader exists, at least
	// as a zombie.
	led := slices.ContainsFunc(all, c.leads)
	in := map[int]bool{c.pid: led}
	self := os.Getpid()
	for grown := true; grown; {
		grown = false
		for _, m := range all {
			if in[m.PID] || m.PID == self || m.start < c.start || m.kernel {
				continue
			}
			if _, known := marks[m.PID]; !known {
				marks[m.PID] = t.markState(m, c.mark)
			}
			if led && (m.PGID == c.pid || m.SID == c.pid) || in[m.PPID] || marks[m.PID] == marked {
				in[m.PID], grown = true, true
			}
		}
	}
	for _, m := range all {
		if in[m.PID] {
			found = append(found, m)
		}
		unsure = unsure || !in[m.PID] && marks[m.PID] == unknown
	}
	return found, unsure
}

// signalGroup sends sig to the process group, which includes the leader, and SIGKILL to the cgroup.
func (c *container) signalGroup(sig syscall.Signal) {
	if sig == syscall.SIGKILL && c.cgroup != nil {
		c.cgroup.kill()
	}
	if c.process != nil {
		syscall.Kill(-c.pid, sig)
	} else if m, ok := c.leader(); ok {
		m.signal(sig)
	}
}

// signalOthers sends sig to those members that are not in the process group.
func (c *container) signalOthers(members []Member, sig syscall.Signal) {
	for _, m := range members {
		// The group id of a process that is not a child may have been reused, so signal each member
		// separately.
		if c.process == nil || m.PGID != c.pid {
			m.signal(sig)
		}
	}
}

func (c *container) signalLeader(sig os.Signal) error {
	if c.process != nil {
		return c.process.Signal(sig)
	}
	m, ok := c.leader()
	if !ok {
		return os.ErrProcessDone
	}
	m.signal(sig.(syscall.Signal))
	return nil
}

func (c *container) resumeGroup()                  { c.signalGroup(syscall.SIGCONT) }
func (c *container) resumeOthers(members []Member) { c.signalOthers(members, syscall.SIGCONT) }

// awaitExit waits for the leader, the process that Start has started, to exit, and leaves it a
// zombie.
func (c *container) awaitExit() {
	if c.pidfd != nil && awaitPidfd(c.pidfd, time.Time{}) {
		return
	}
	if c.process == nil {
		for alive := true; alive; { // without a pidfd, which old kernels do not have, poll
			Member{PID: c.pid, start: c.start}.await(time.Now().Add(time.Hour))
			_, alive = c.leader()
		}
		return
	}
	for waitid(c.pid) == syscall.EINTR {
	}
}

// awaitMembers waits until all members have ended, or the deadline has passed.
func (c *container) awaitMembers(members []Member, deadline time.Time) {
	for _, m := range members {
		m.await(deadline)
	}
}

func (c *container) reap() (*os.ProcessState, error) {
	if c.process == nil {
		return nil, nil
	}
	return c.process.Wait()
}

// containment returns the mark and the cgroup by which another program can find the members.
func (c *container) containment() Containment {
	in := Containment{Mark: c.mark}
	if c.cgroup != nil {
		in.Cgroup = c.cgroup.path
	}
	return in
}

func (c *container) release() {
	if c.pidfd != nil {
		c.pidfd.Close()
	}
	if c.cgroup != nil {
		c.cgroup.remove()
	}
}

func (c *container) ranOutOfMemory() bool { return c.cgroup != nil && c.cgroup.ranOutOfMemory() }
