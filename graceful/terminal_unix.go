//go:build linux || darwin || freebsd

package graceful

import (
	"os"
	"syscall"
	"unsafe"
)

// columns returns the width of the terminal f, or 0 if f is not a terminal.
func columns(f *os.File) int {
	conn, err := f.SyscallConn() // unlike Fd, SyscallConn leaves the file in non-blocking mode
	if err != nil {
		return 0
	}
	var size struct{ rows, columns, x, y uint16 }
	var errno syscall.Errno
	err = conn.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size)))
	})
	switch {
	case err != nil || errno != 0:
		return 0
	case size.columns == 0:
		return 80 // assume 80 columns if the terminal does not report its size
	}
	return int(size.columns)
}
