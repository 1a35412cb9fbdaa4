//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package proc

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// A container is the process group of the leader, the process that Start has started. The members
// of the group cannot be listed, so the processes that the leader leaves behind are killed at once.
type container struct {
	cmd   *exec.Cmd
	queue int // a kqueue that reports when the leader exits
}

func startContained(cmd *exec.Cmd, spec Spec) (*container, error) {
	// Create the kqueue before the process is started. If Kqueue fails, no process has been
	// started, for whose exit this program could not wait.
	queue, err := syscall.Kqueue()
	if err != nil {
		return nil, os.NewSyscallError("kqueue", err)
	}
	syscall.CloseOnExec(queue)
	c := &container{cmd, queue}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: spec.User.credential()}
	setParentDeath(cmd.SysProcAttr, spec.ParentDeath)
	if err := cmd.Start(); err != nil {
		c.release()
		return nil, err
	}
	var exit syscall.Kevent_t
	syscall.SetKevent(&exit, cmd.Process.Pid, syscall.EVFILT_PROC, syscall.EV_ADD|syscall.EV_ONESHOT)
	exit.Fflags = syscall.NOTE_EXIT
	switch err := c.kevent([]syscall.Kevent_t{exit}, nil); {
	case errors.Is(err, syscall.ESRCH): // the process has exited already
		c.release()
		c.queue = -1
	case err != nil:
		cmd.Process.Kill()
		cmd.Process.Wait()
		c.release()
		return nil, os.NewSyscallError("kevent", err)
	}
	return c, nil
}

func (c *container) kevent(changes, events []syscall.Kevent_t) error {
	for {
		if _, err := syscall.Kevent(c.queue, changes, events, nil); err != syscall.EINTR {
			return err
		}
	}
}

func (c *container) signalLeader(sig os.Signal) error { return c.cmd.Process.Signal(sig) }

func (c *container) name() string                          { return "group" }
func (c *container) lists() bool                           { return false }
func (c *container) members() []Member                     { return nil }
func (c *container) near() ([]Member, bool)                { return nil, true }
func (c *container) leader() (Member, bool)                { return Member{}, false }
func (c *container) signalGroup(sig syscall.Signal)        { syscall.Kill(-c.cmd.Process.Pid, sig) }
func (c *container) signalOthers([]Member, syscall.Signal) {}
func (c *container) resumeGroup()                          { c.signalGroup(syscall.SIGCONT) }
func (c *container) resumeOthers([]Member)                 {}
func (c *container) awaitMembers([]Member, time.Time)      {}
func (c *container) reap() (*os.ProcessState, error)       { return c.cmd.Process.Wait() }

func (c *container) release() {
	if c.queue >= 0 {
		syscall.Close(c.queue)
	}
}

// awaitExit waits for the leader, the process that Start has started, to exit, and leaves it a
// zombie. It blocks an OS thread. waitid would do the same, but on macOS it also returns for a
// stopped process (go.dev/issue/19314), and OpenBSD has had it for a short time only.
func (c *container) awaitExit() {
	if c.queue >= 0 {
		c.kevent(nil, make([]syscall.Kevent_t, 1))
	}
}

func (c *container) ranOutOfMemory() bool { return false }
