//go:build !linux && !darwin && !dragonfly && !freebsd && !netbsd && !openbsd && !windows

package proc

import "syscall"

// leaderAttr puts the leader, the process that Start starts, into a process group of its own. A ^C
// on the terminal then reaches only this program, which decides when the leader ends.
func leaderAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func (c *container) resumeGroup() { c.cmd.Process.Signal(syscall.SIGCONT) }
