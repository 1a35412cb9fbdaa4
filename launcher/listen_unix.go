//go:build unix

package launcher

import (
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// stopListening ends the listening on a socket, whoever else has it open.
func stopListening(f *os.File) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) { unix.Shutdown(int(fd), unix.SHUT_RDWR) })
}

// fileOf returns a file of a listener that can be inherited. It is not what the File method of a listener returns: os/exec
// makes such a file blocking, and with it the socket, for all processes that have it by then. One that drains would wait
// in accept for a client that may never come.
func fileOf(ln net.Listener) (*os.File, error) {
	conn, ok := ln.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("%s listeners cannot be handed over", ln.Addr().Network())
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var dup int
	var failed error
	if err := raw.Control(func(fd uintptr) { dup, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return nil, err
	}
	if failed != nil {
		return nil, os.NewSyscallError("fcntl", failed)
	}
	return os.NewFile(uintptr(dup), "listener on "+ln.Addr().String()), nil
}
