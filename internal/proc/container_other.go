//go:build !linux && !darwin && !dragonfly && !freebsd && !netbsd && !openbsd

package proc

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

// On these systems, a container is only the leader, which is the process that Start has started.
// Processes that the leader has started are not ended. A signal to the process group of the leader
// would reach them, but the id of the group is the pid of the leader. These systems have no wait
// that leaves the leader a zombie, so another process may have that pid by the time the exit of the
// leader is noticed.
type container struct {
	cmd   *exec.Cmd
	state *os.ProcessState
	err   error
}

func startContained(cmd *exec.Cmd, _ Spec) (*container, error) {
	cmd.SysProcAttr = leaderAttr()
	return &container{cmd: cmd}, cmd.Start()
}

func (c *container) signalLeader(sig os.Signal) error { return c.cmd.Process.Signal(sig) }

func (c *container) name() string                     { return "leader" }
func (c *container) lists() bool                      { return false }
func (c *container) members() []Member                { return nil }
func (c *container) near() ([]Member, bool)           { return nil, true }
func (c *container) leader() (Member, bool)           { return Member{}, false }
func (c *container) awaitMembers([]Member, time.Time) {}

func (c *container) signalOthers([]Member, syscall.Signal) {}
func (c *container) resumeOthers([]Member)                 {}

func (c *container) signalGroup(sig syscall.Signal) {
	if c.cmd.Process.Signal(sig) != nil { // Windows supports no signal other than Kill
		c.cmd.Process.Kill()
	}
}

// awaitExit waits for the leader, the process that Start has started, and reaps it. Package os
// ensures that no signal sent to the leader afterwards reaches another process with the same pid.
func (c *container) awaitExit() { c.state, c.err = c.cmd.Process.Wait() }

func (c *container) reap() (*os.ProcessState, error) { return c.state, c.err }
func (c *container) release()                        {}

func (c *container) ranOutOfMemory() bool { return false }
