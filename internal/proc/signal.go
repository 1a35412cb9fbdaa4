package proc

import (
	"os"
	"slices"
	"syscall"
)

// Signal sends sig to the leader only, which is the process that Start has started, or to the
// process that has taken the place of the leader; see Follow. It returns [os.ErrProcessDone] once
// the leader has exited.
func (p *Process) Signal(sig os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hasExited() {
		return os.ErrProcessDone
	}
	if p.followed != nil && p.followed.isAlive() {
		p.followed.signal(sig.(syscall.Signal))
		return nil
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
//
// Terminate and Kill signal the leader, its process group and the members that can be found without
// a search before they return. Processes that only a search in /proc can find are signalled later,
// because a search can take a second on a busy machine.
func (p *Process) Terminate() { p.signalAll(syscall.SIGTERM) }

// Kill sends SIGKILL to all processes of the container. If there is a cgroup, it uses cgroup.kill.
func (p *Process) Kill() { p.signalAll(syscall.SIGKILL) }

// signalAll sends sig to all processes of the container. Some can be found only by a search in
// /proc. They get sig later, and signalAll does not wait for that. It returns a channel that is
// closed when the search of this call is over, or at once if no search is needed.
func (p *Process) signalAll(sig syscall.Signal) <-chan struct{} {
	searched := make(chan struct{})
	sent, search := p.signalKnown(sig)
	if !search {
		close(searched)
		return searched
	}
	go func() {
		defer close(searched)
		p.searchAndSignal(sig, sent)
	}()
	return searched
}

// signalKnown sends sig to all processes that can be found without a search: the process group,
// which includes the leader, the cgroup, the descendants of the leader, and what earlier
// searches have found. It sends nothing if the leader has been reaped. It returns the members to
// which it has sent sig, and whether the caller has to search for more.
func (p *Process) signalKnown(sig syscall.Signal) (sent []Member, search bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return nil, false
	}
	p.killing = p.killing || sig == syscall.SIGKILL
	if !p.hasExited() {
		p.exit.Terminated = p.exit.Terminated || sig == syscall.SIGTERM
		p.exit.Killed = p.exit.Killed || sig == syscall.SIGKILL
	}
	// List the descendants before the group is signalled: once their parent has exited, they are no
	// longer descendants of the leader.
	near, complete := p.contain.near()
	p.remember(near)
	p.contain.signalGroup(sig)
	sent = slices.Clone(p.known)
	p.contain.signalOthers(sent, sig)
	if sig == syscall.SIGTERM {
		p.contain.resumeGroup()
		p.contain.resumeOthers(sent)
	}
	if complete || p.queued[sig] {
		return sent, false
	}
	p.queued[sig] = true
	return sent, true
}

// searchAndSignal searches for the members that are not in the process group, and sends sig to
// those that have not received it.
func (p *Process) searchAndSignal(sig syscall.Signal, received []Member) {
	p.search.Lock() // keeps the waiter from reaping the leader before the search is over
	defer p.search.Unlock()
	p.mu.Lock()
	delete(p.queued, sig) // a later call of signalAll needs a search of its own, to find processes that start after this one began
	// Once the leader has exited, the goroutine that waits for it searches for the processes that
	// are left. If the field killing is set, that goroutine kills them at once, so no search is
	// needed here.
	superfluous := p.reaped || p.killing && p.hasExited()
	p.mu.Unlock()
	if superfluous {
		return
	}
	members := exclude(p.members(), received)
	p.contain.signalOthers(members, sig)
	if sig == syscall.SIGTERM {
		p.contain.resumeOthers(members)
	}
}

// isKilling reports whether SIGKILL has been sent by a call of Kill or End.
func (p *Process) isKilling() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killing
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
