//go:build !linux && !darwin && !dragonfly && !freebsd && !netbsd && !openbsd

package proc

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

// A container is the leader alone: there is no wait for its end here that leaves it a zombie, so its number, which is that
// of its group, may be somebody else's when it is noticed that it has ended. What it has started, it has to end itself.
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
func (c *container) leader() (Member, bool)           { return Member{}, false }
func (c *container) awaitMembers([]Member, time.Time) {}

func (c *container) signal(_ []Member, sig syscall.Signal) {
	if c.cmd.Process.Signal(sig) != nil { // Windows has no signal but the end
		c.cmd.Process.Kill()
	}
}

// awaitExit waits in full. Package os takes care that no signal goes to whoever gets the process id next.
func (c *container) awaitExit() { c.state, c.err = c.cmd.Process.Wait() }

func (c *container) reap() (*os.ProcessState, error) { return c.state, c.err }
func (c *container) release()                        {}
