package proc

import (
	"cmp"
	"crypto/rand"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// A container is what the leader and all that it starts are in.
type container struct {
	cmd    *exec.Cmd // nil: not started by us, so no zombie of ours keeps its number
	pid    int
	start  uint64 // when the leader started, in the kernel's ticks
	pidfd  *os.File
	cgroup *cgroup // nil where none can be made
	mark   string
}

// subreaper is whether orphans below us are adopted by us.
var subreaper atomic.Bool

// markKey is the variable of the environment that carries the marks, one for each container that the process is in. The
// idea, to know by its environment whose a process is, is from Jenkins (ProcessTreeKiller).
const markKey = "SWANSONG_PROC"

func startContained(cmd *exec.Cmd, spec Spec) (*container, error) {
	c := &container{cmd: cmd, mark: rand.Text()}
	env := cmd.Environ()
	own := strings.TrimPrefix(spec.In.Mark+" "+c.mark, " ")
	marks := own
	for _, v := range env {
		if old, ok := strings.CutPrefix(v, markKey+"="); ok {
			marks = old + " " + own // whoever contains us contains those below us
		}
	}
	cmd.Env = append(env, markKey+"="+marks)

	if spec.Subreaper {
		const setChildSubreaper = 36
		_, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, setChildSubreaper, 1, 0, 0, 0, 0)
		if errno == 0 {
			subreaper.Store(true)
		}
	}
	pidfd := -1
	attr := syscall.SysProcAttr{Setpgid: true, Pdeathsig: spec.ParentDeath, PidFD: &pidfd}
	plain := *cmd // a Cmd can be started once
	plain.SysProcAttr = &attr
	if !spec.NoCgroup {
		c.cgroup = newCgroup(cmp.Or(spec.In.Cgroup, ownCgroup()))
	}
	if c.cgroup != nil {
		inside := attr
		inside.UseCgroupFD, inside.CgroupFD = true, int(c.cgroup.dir.Fd())
		cmd.SysProcAttr = &inside
		if cmd.Start() != nil { // the cgroup may not be ours to put processes into; else the error is the same again
			c.cgroup.remove()
			c.cgroup = nil
		}
	}
	if c.cgroup == nil {
		if err := plain.Start(); err != nil {
			return nil, err
		}
		cmd.Process = plain.Process
	}
	c.pid = cmd.Process.Pid
	if pidfd >= 0 {
		c.pidfd = pollable(pidfd)
	}
	if m, ok := stat(c.pid); ok { // running or a zombie, it is there until we reap it
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

// leads reports whether m is the leader, and not who has its number after it.
func (c *container) leads(m Member) bool {
	return m.PID == c.pid && (c.cmd != nil || m.start == c.start) // until we reap it, its number is its own
}

// members returns those alive, without the leader.
func (c *container) members() []Member {
	var found []Member
	if c.cgroup != nil {
		for _, pid := range c.cgroup.pids() {
			if m, ok := stat(pid); ok {
				found = append(found, m)
			}
		}
	}
	if c.cgroup == nil || c.cmd == nil { // whoever has not started it cannot know whether the cgroup took it
		found = append(found, c.walk()...)
		slices.SortStableFunc(found, func(a, b Member) int { return cmp.Compare(a.PID, b.PID) })
		found = slices.CompactFunc(found, func(a, b Member) bool { return a.PID == b.PID })
	}
	return slices.DeleteFunc(found, func(m Member) bool {
		if m.zombie && subreaper.Load() && m.PPID == os.Getpid() && !c.leads(m) {
			syscall.Wait4(m.PID, nil, syscall.WNOHANG, nil) // adopted, and nobody else's to wait for
		}
		return m.zombie || c.leads(m)
	})
}

// walk finds the group, the session, the descendants and the marked in /proc. It looks again
//
//   - when it finds nobody: who was about to fork may have died between the list of /proc and the look at him, and his child
//     is on the next list only;
//   - while there is somebody of whom it cannot tell: for some microseconds of an exec a process has no environment at all,
//     and the child of a second fork, whose parents have gone, looks like nobody's then. Those who never had one are taken for
//     what they are in the end.
//
// It takes more than one such chance at a time to get away; a cgroup leaves none.
func (c *container) walk() []Member { return walk(c.look, c.leads) }

func walk(look func() (found []Member, unsure bool), leads func(Member) bool) []Member {
	nobody := false
	for looks := 1; ; looks++ {
		found, unsure := look()
		others := slices.ContainsFunc(found, func(m Member) bool { return !leads(m) && !m.zombie })
		if !unsure && (others || nobody) || looks == maxLooks {
			return found
		}
		if nobody = !others; unsure {
			time.Sleep(time.Millisecond) // there is nothing to wait on
		}
	}
}

const maxLooks = 20

// look is one walk. unsure is whether somebody is no member, but may be.
func (c *container) look() (found []Member, unsure bool) {
	t := newTable()
	all := t.all
	marks := map[int]mark{}
	led := slices.ContainsFunc(all, c.leads) // while it is there, as a zombie at least, its group and session are its own
	in := map[int]bool{c.pid: led}
	self := os.Getpid()
	for grown := true; grown; {
		grown = false
		for _, m := range all {
			if in[m.PID] || m.PID == self || m.start < c.start || m.kernel {
				continue
			}
			if _, known := marks[m.PID]; !known {
				marks[m.PID] = t.mark(m, c.mark)
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

// signal sends sig to the group, which takes the leader in, and to the members outside of it.
func (c *container) signal(members []Member, sig syscall.Signal) {
	if sig == syscall.SIGKILL && c.cgroup != nil {
		c.cgroup.kill()
	}
	if c.cmd != nil {
		syscall.Kill(-c.pid, sig)
	} else if m, ok := c.leader(); ok {
		m.signal(sig)
	}
	for _, m := range members {
		if c.cmd == nil || m.PGID != c.pid { // the number of a group that has no zombie of ours may be another one's
			m.signal(sig)
		}
	}
}

func (c *container) signalLeader(sig os.Signal) error {
	if c.cmd != nil {
		return c.cmd.Process.Signal(sig)
	}
	m, ok := c.leader()
	if !ok {
		return os.ErrProcessDone
	}
	m.signal(sig.(syscall.Signal))
	return nil
}

func (c *container) wake(members []Member) { c.signal(members, syscall.SIGCONT) }

// awaitExit returns when the leader has ended, and leaves it a zombie.
func (c *container) awaitExit() {
	if c.pidfd != nil && awaitPidfd(c.pidfd, time.Time{}) {
		return
	}
	if c.cmd == nil {
		for alive := true; alive; { // on kernels without pidfds
			Member{PID: c.pid, start: c.start}.await(time.Now().Add(time.Hour))
			_, alive = c.leader()
		}
		return
	}
	for waitid(c.pid) == syscall.EINTR {
	}
}

// awaitMembers returns when all of them have ended, or at the deadline.
func (c *container) awaitMembers(members []Member, deadline time.Time) {
	for _, m := range members {
		m.await(deadline)
	}
}

func (c *container) reap() (*os.ProcessState, error) {
	if c.cmd == nil {
		return nil, nil
	}
	return c.cmd.Process.Wait()
}

func (c *container) release() {
	if c.pidfd != nil {
		c.pidfd.Close()
	}
	if c.cgroup != nil {
		c.cgroup.remove()
	}
}
