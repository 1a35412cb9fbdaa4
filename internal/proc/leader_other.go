//go:build !linux && !darwin && !dragonfly && !freebsd && !netbsd && !openbsd && !windows

package proc

import "syscall"

// leaderAttr gives the leader a group of its own, so that a ^C is not for it: it is ended when this program says so.
func leaderAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func (c *container) wake([]Member) { c.cmd.Process.Signal(syscall.SIGCONT) }
