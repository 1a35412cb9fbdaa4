//go:build unix

package listeners

import (
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// stopListening makes a socket stop listening in all processes that have it open.
func stopListening(f *os.File) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) { unix.Shutdown(int(fd), unix.SHUT_RDWR) })
}

// fileOf returns a duplicate of a listener's socket, for processes to inherit.
//
// The method File of the listener cannot be used: os/exec sets such a file to blocking mode, and
// thereby the socket in all processes that have it open. A process that drains would then block in
// accept until another client connects.
func fileOf(ln net.Listener) (*os.File, error) {
	conn, ok := ln.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("%s listeners cannot be inherited", ln.Addr().Network())
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var dup int
	var dupErr error
	if err := raw.Control(func(fd uintptr) { dup, dupErr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return nil, err
	}
	if dupErr != nil {
		return nil, os.NewSyscallError("fcntl", dupErr)
	}
	return os.NewFile(uintptr(dup), "listener on "+ln.Addr().String()), nil
}
