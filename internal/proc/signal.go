package proc

import (
	"os"
	"sync"
	"syscall"
	"time"
)

// Signal sends sig to the leader only. It returns [os.ErrProcessDone] once the leader has exited.
func (p *Process) Signal(sig os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hasExited() {
		return os.ErrProcessDone
	}
	return p.contain.signalLeader(sig)
}

// hasExited reports whether the leader has exited. The caller holds mu.
func (p *Process) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return p.reaped
	}
}

// Terminate sends SIGTERM to all processes of the container. It also sends SIGCONT, because a
// stopped process would not receive SIGTERM. On Windows it kills the leader.
func (p *Process) Terminate() { p.signalAll(syscall.SIGTERM) }

// Kill sends SIGKILL to all processes of the container. If there is a cgroup, it uses cgroup.kill.
func (p *Process) Kill() { p.signalAll(syscall.SIGKILL) }

// searchTime is the longest time for which a signal to the process group waits for the search for
// processes that are not in the group. Usually a search takes some milliseconds, but on a busy
// machine it can take seconds, which are more than a deadline allows.
const searchTime = 100 * time.Millisecond

// signalAll sends sig to the process group and to all members that are not in it. It searches for
// those first, because a process can be recognizable only as a child of the leader, and is no longer
// that when the leader has exited. If the search takes longer than searchTime, signalAll signals the
// group and returns; what the search finds is signalled later.
func (p *Process) signalAll(sig syscall.Signal) {
	signalGroup := sync.OnceFunc(func() { p.signalGroup(sig) })
	searched := make(chan struct{})
	go func() {
		p.search.Lock() // the leader is not reaped before the search is over
		defer p.search.Unlock()
		if p.isReaped() {
			close(searched)
			return
		}
		members := p.members()
		signalGroup()
		p.contain.signalOthers(members, sig)
		if sig == syscall.SIGTERM {
			p.contain.resumeOthers(members)
		}
		close(searched)
	}()
	t := time.NewTimer(searchTime)
	defer t.Stop()
	select {
	case <-searched:
	case <-t.C:
		signalGroup()
	}
}

// signalGroup sends sig to the process group, which includes the leader, and SIGKILL to the cgroup.
// It needs no search, because the kernel knows their members. It sends nothing if the leader has
// been reaped.
func (p *Process) signalGroup(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return
	}
	if !p.hasExited() {
		p.exit.Terminated = p.exit.Terminated || sig == syscall.SIGTERM
		p.exit.Killed = p.exit.Killed || sig == syscall.SIGKILL
	}
	p.contain.signalGroup(sig)
	if sig == syscall.SIGTERM {
		p.contain.resumeGroup()
	}
}

func (p *Process) isReaped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reaped
}

// signal sends sig to the process group and to all members that are not in it.
func (c *container) signal(members []Member, sig syscall.Signal) {
	c.signalGroup(sig)
	c.signalOthers(members, sig)
}
