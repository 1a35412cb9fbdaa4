package proc

import (
	"syscall"
	"time"
)

// Follow replaces the leader, the process that Start has started, by a process that the leader has
// started. So a leader can hand over to a process that it has started, as a daemon does when it
// starts. Signal goes to that process, and Pid and Adoptable return it. The Process has exited when
// both the leader and that process have exited. The leader may exit first; if it has not, it is
// ended when the other process has exited. The exit status of the Process is then that of the other
// process. It is known from Linux 6.15 on; older kernels tell it only to the parent of that
// process.
//
// Follow returns false, and changes nothing, if pid is not a living process of the container.
func (p *Process) Follow(pid int) bool {
	for _, m := range p.Members() {
		if m.PID != pid {
			continue
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.hasExited() {
			return false
		}
		if p.followedPidfd != nil {
			p.followedPidfd.Close()
		}
		p.followedPidfd = m.pidfd()
		if p.followed = &m; pid == p.pid {
			p.followed = nil
			return true
		}
		go p.endAfter(&m)
		return true
	}
	return false
}

// endAfter waits for the process m to end. If m has taken the place of the leader by then (see
// Follow), endAfter also ends the leader.
func (p *Process) endAfter(m *Member) {
	m.await(time.Now().Add(forever))
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		p.mu.Lock()
		if p.followed == m && !p.hasExited() {
			p.contain.signalLeader(sig)
		}
		p.mu.Unlock()
		p.doneBy(time.Now().Add(p.linger))
	}
}

// forever is longer than any process lives.
const forever = 100 * 365 * 24 * time.Hour

// main returns the process that has taken the place of the leader by a call of Follow, if that
// process is alive.
func (p *Process) main() (m Member, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.followed == nil || !p.followed.isAlive() {
		return Member{}, false
	}
	return *p.followed, true
}

// awaitExit waits until the leader has exited, and, if a process has taken the place of the leader,
// until that process has exited.
func (p *Process) awaitExit() {
	p.contain.awaitExit()
	for {
		if p.onLeaderExit != nil {
			// onLeaderExit may call Follow. Then main returns the process that has taken the place
			// of the leader.
			p.onLeaderExit()
		}
		m, ok := p.main()
		if !ok {
			return
		}
		m.await(time.Now().Add(forever))
	}
}
