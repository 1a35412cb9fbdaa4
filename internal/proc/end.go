package proc

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"
)

// Deadlines are the times of the steps that end a process. A time in the past means at once. Obtain
// them from time.Now, so that they carry a monotonic clock reading and do not move when the clock
// is set.
type Deadlines struct {
	Terminate time.Time // when to send SIGTERM to all processes, unless the process has ended by then; used only if before Kill
	Kill      time.Time // when to send SIGKILL to all processes
	GiveUp    time.Time // when End stops waiting and returns ErrUnconfirmed
}

// ErrUnconfirmed is returned by [Process.End] if the process is not known to have ended.
var ErrUnconfirmed = errors.New("not known to have ended")

// End waits for the process, sends SIGTERM and SIGKILL when their time comes, and returns the exit
// once the process has been reaped. At GiveUp it returns an error that matches [ErrUnconfirmed] and
// names the processes that are known to be alive. On macOS, the BSDs and Windows it names none,
// because processes cannot be listed there. The process is still waited for in the background.
// Calls may overlap: the earliest deadline of each kind applies.
func (p *Process) End(at Deadlines) (Exit, error) {
	if p.doneBy(at.Terminate) {
		return p.Exit(), nil
	}
	kill := at.Kill
	if at.Terminate.Before(at.Kill) {
		kill = p.killTime(at, p.signalAll(syscall.SIGTERM))
	}
	if p.doneBy(kill) {
		return p.Exit(), nil
	}
	p.signalAll(syscall.SIGKILL)
	if p.doneBy(at.GiveUp) {
		return p.Exit(), nil
	}
	p.mu.Lock()
	exit, reaped := p.exit, p.reaped
	p.mu.Unlock()
	if reaped { // all processes have ended, and only the cgroup has not been removed yet
		return exit, nil
	}
	exit.Code, exit.Survivors = -1, p.knownMembers()
	return exit, p.unconfirmed(exit.Survivors)
}

// killTime waits for the search for the processes that receive SIGTERM, but not beyond at.Kill. It
// then returns the time at which SIGKILL is to be sent. If searches are slow, that time is before
// at.Kill, so that the searches that confirm the end can finish by at.GiveUp.
func (p *Process) killTime(at Deadlines, searched <-chan struct{}) time.Time {
	// Leave time for one search that finds members, one that finds none, and six more in reserve.
	const searches = 8
	limit := time.NewTimer(time.Until(at.Kill))
	defer limit.Stop()
	select {
	case <-searched:
	case <-limit.C:
	case <-p.done:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if early := at.GiveUp.Add(-searches * p.slowest); early.Before(at.Kill) {
		return early
	}
	return at.Kill
}

// unconfirmed returns the error of End for a Process that is not known to have ended. The parameter
// alive contains the members that are known to be alive.
func (p *Process) unconfirmed(alive []Member) error {
	p.mu.Lock()
	exited := p.hasExited()
	p.mu.Unlock()
	names := make([]string, len(alive))
	for i, m := range alive {
		names[i] = m.String()
	}
	switch {
	case len(alive) > 0:
		return fmt.Errorf("%w after SIGKILL; still running: %s", ErrUnconfirmed, strings.Join(names, ", "))
	case exited && !p.contain.lists():
		return fmt.Errorf("%w: pid %d has exited, and is being reaped", ErrUnconfirmed, p.Pid())
	case exited:
		return fmt.Errorf("%w: pid %d has exited, and the search for processes that it has left behind is not over", ErrUnconfirmed, p.Pid())
	}
	return fmt.Errorf("%w after SIGKILL: pid %d", ErrUnconfirmed, p.Pid())
}

// doneBy waits until the process is done, but no longer than the given time. It reports whether the
// process is done.
func (p *Process) doneBy(at time.Time) bool {
	select {
	case <-p.done:
		return true
	default:
	}
	d := time.Until(at)
	if d <= 0 {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.done:
		return true
	case <-t.C:
		return false
	}
}
