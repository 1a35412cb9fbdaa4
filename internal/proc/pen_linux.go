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

// NewPen names a pen, and makes nothing yet.
func NewPen() Pen {
	p := Pen{Mark: rand.Text()}
	if base := ownCgroup(); base != "" {
		p.Cgroup = nameCgroup(base)
	}
	return p
}

// Make makes what there has to be before a process can be started in the pen, as far as it can be made.
func (p Pen) Make() {
	if p.Cgroup == "" {
		return
	}
	if g := makeCgroup(p.Cgroup); g != nil {
		g.dir.Close()
	}
}

// container returns the pen as a container that has no leader.
func (p Pen) container() *container {
	c := &container{mark: p.Mark}
	if p.Cgroup != "" {
		c.cgroup = openCgroup(p.Cgroup)
	}
	return c
}

func (p Pen) empty(deadline time.Time) (survivors []Member) {
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

// Leader returns the process that was started in the pen, for whoever knows the pen, and not the process: the first one in
// it, which leads its group. It returns false if there is none.
func (p Pen) Leader() (Kept, bool) {
	if p.Mark == "" {
		return Kept{}, false
	}
	c := p.container()
	if c.cgroup != nil {
		defer c.cgroup.dir.Close()
	}
	members := slices.DeleteFunc(c.members(), func(m Member) bool { return m.PGID != m.PID })
	if len(members) == 0 {
		return Kept{}, false
	}
	first := slices.MinFunc(members, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.PID, b.PID))
	})
	return Kept{p, first.PID, first.start}, true
}

// Alive reports whether the process runs, and is not another one with its number.
func (k Kept) Alive() bool {
	m, ok := stat(k.PID)
	return ok && !m.zombie && m.start == k.Born
}

// Boot names the boot of the machine that this is. Numbers of processes and their ages mean nothing in another one.
func Boot() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}

func adoptContained(k Kept) (*container, error) {
	c := k.container()
	c.pid, c.start = k.PID, k.Born
	if fd, alive := (Member{PID: k.PID, start: k.Born}).open(); alive && fd >= 0 {
		c.pidfd = pollable(fd)
	}
	return c, nil
}

func (c *container) born() uint64 { return c.start }
