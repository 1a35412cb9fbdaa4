package proc

import "syscall"

// leaderAttr puts the leader, the process that Start starts, into a console process group of its
// own, so that a ^C in the console does not reach the leader.
func leaderAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

func (c *container) resumeGroup() {}
