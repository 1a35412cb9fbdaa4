package peer

import (
	"fmt"
	"syscall"
)

// credentialsOf returns the credentials of the process at the other end of conn. It asks the kernel
// for SO_PEERCRED: the kernel recorded the credentials when the other process connected, and they
// stay what they were, even if that process has passed the socket on.
func credentialsOf(conn syscall.Conn) (Info, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Info{}, fmt.Errorf("peer: cannot read the credentials of the process at the other end of the socket: %w", err)
	}
	var cred *syscall.Ucred
	var failure error
	err = raw.Control(func(fd uintptr) {
		cred, failure = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err == nil {
		err = failure
	}
	if err != nil {
		return Info{}, fmt.Errorf("peer: cannot read the credentials of the process at the other end of the socket: %w", err)
	}
	return Info{UID: int(cred.Uid), PID: int(cred.Pid)}, nil
}
