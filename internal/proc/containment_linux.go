package proc

import (
	"cmp"
	"crypto/rand"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// NewContainment returns a new containment. It only chooses the name of the cgroup and the mark;
// Make creates the cgroup.
func NewContainment() Containment {
	p := Containment{Mark: rand.Text()}
	if base := ownCgroup(); base != "" {
		p.Cgroup = nameCgroup(base)
	}
	return p
}

// Make creates the containment's cgroup, if possible. Call it before starting a process in the
// containment.
func (p Containment) Make() {
	if p.Cgroup == "" {
		return
	}
	if g := makeCgroup(p.Cgroup); g != nil {
		g.dir.Close()
	}
}

// container returns a container that finds the processes of the containment by its mark and in its
// cgroup. It was not started for a process, so its fields for the leader are empty.
func (p Containment) container() *container {
	adopting.Store(true)
	c := &container{mark: p.Mark}
	if p.Cgroup != "" {
		c.cgroup = openCgroup(p.Cgroup)
	}
	return c
}

func (p Containment) empty(deadline time.Time) (survivors []Member) {
	if p.Mark == "" {
		return nil
	}
	c := p.container()
	for {
		survivors = c.members()
		if len(survivors) == 0 || !time.Now().Before(deadline) {
			break
		}
		c.signal(survivors, syscall.SIGKILL)
		c.awaitMembers(survivors, deadline)
	}
	c.release()
	return survivors
}

// Leader returns the process that was started in the containment: the oldest one that leads its
// process group. It returns false if there is none. Use it if the containment is known and the pid
// is not.
func (p Containment) Leader() (Adoptable, bool) {
	if p.Mark == "" {
		return Adoptable{}, false
	}
	c := p.container()
	if c.cgroup != nil {
		defer c.cgroup.dir.Close()
	}
	members := slices.DeleteFunc(c.members(), func(m Member) bool { return m.PGID != m.PID })
	if len(members) == 0 {
		return Adoptable{}, false
	}
	first := slices.MinFunc(members, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.PID, b.PID))
	})
	return Adoptable{p, first.PID, first.start}, true
}

// Self returns what identifies the process of this program.
func Self() Adoptable {
	self, _ := stat(os.Getpid())
	return Adoptable{PID: self.PID, Born: self.start}
}

// Alive reports whether the process is running. If another process has reused its pid, Alive
// returns false.
func (k Adoptable) Alive() bool {
	return Member{PID: k.PID, start: k.Born}.isAlive()
}

// Boot returns an identifier of the current boot of this machine. Pids and start times are valid
// within one boot only.
func Boot() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}

func adoptContained(k Adoptable, child bool) (*container, error) {
	c := k.container()
	c.adopted, c.pid, c.start = true, k.PID, k.Born
	if m, ok := stat(k.PID); child && ok && m.start == k.Born && m.PPID == os.Getpid() {
		process, err := os.FindProcess(k.PID)
		if err != nil {
			return nil, err
		}
		c.process = process
	}
	if fd, alive := (Member{PID: k.PID, start: k.Born}).open(); alive && fd >= 0 {
		c.pidfd = pollable(fd)
	}
	return c, nil
}

func (c *container) born() uint64 { return c.start }
