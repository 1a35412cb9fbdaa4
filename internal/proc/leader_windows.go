package proc

import "syscall"

// leaderAttr gives the leader a console group of its own, so that a ^C is not for it.
func leaderAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

func (c *container) wake([]Member) {}
