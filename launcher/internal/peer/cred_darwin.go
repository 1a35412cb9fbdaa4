package peer

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// credentialsOf returns the credentials of the process at the other end of conn. It asks the kernel
// for LOCAL_PEERCRED, and also for LOCAL_PEERPID, because LOCAL_PEERCRED has no pid.
func credentialsOf(conn syscall.Conn) (Info, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Info{}, fmt.Errorf("peer: cannot read the credentials of the process at the other end of the socket: %w", err)
	}
	var cred *unix.Xucred
	var pid int
	var failure error
	err = raw.Control(func(fd uintptr) {
		if cred, failure = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED); failure == nil {
			pid, failure = unix.GetsockoptInt(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERPID)
		}
	})
	if err == nil {
		err = failure
	}
	if err != nil {
		return Info{}, fmt.Errorf("peer: cannot read the credentials of the process at the other end of the socket: %w", err)
	}
	return Info{UID: int(cred.Uid), PID: pid}, nil
}
