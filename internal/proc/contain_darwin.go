package proc

import (
	"os"
	"os/exec"
	"syscall"
	"time"
	"unsafe"
)

// A container is a process group. Nobody in it can be listed, so what the leader leaves behind is killed at once.
type container struct{ cmd *exec.Cmd }

func startContained(cmd *exec.Cmd, _ Spec) (*container, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return &container{cmd}, cmd.Start()
}

func (c *container) signalLeader(sig os.Signal) error { return c.cmd.Process.Signal(sig) }

func (c *container) name() string                          { return "group" }
func (c *container) lists() bool                           { return false }
func (c *container) members() []Member                     { return nil }
func (c *container) leader() (Member, bool)                { return Member{}, false }
func (c *container) signal(_ []Member, sig syscall.Signal) { syscall.Kill(-c.cmd.Process.Pid, sig) }
func (c *container) wake(members []Member)                 { c.signal(members, syscall.SIGCONT) }
func (c *container) awaitMembers([]Member, time.Time)      {}
func (c *container) reap() (*os.ProcessState, error)       { return c.cmd.Process.Wait() }
func (c *container) release()                              {}

// awaitExit waits on a thread of its own for the leader to end, and leaves it a zombie.
func (c *container) awaitExit() {
	const pPid, wExited, wNoWait = 1, 4, 0x20
	var info [128]byte
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, pPid, uintptr(c.cmd.Process.Pid), uintptr(unsafe.Pointer(&info)),
			wExited|wNoWait, 0, 0)
		if errno != syscall.EINTR {
			return
		}
	}
}
