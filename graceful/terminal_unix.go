//go:build linux || darwin || freebsd

package graceful

import (
	"os"
	"syscall"
	"unsafe"
)

// columns returns how wide the terminal is, 0 if f is none.
func columns(f *os.File) int {
	conn, err := f.SyscallConn() // unlike Fd, this leaves the file as it is
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
		return 80 // a terminal that does not say
	}
	return int(size.columns)
}
