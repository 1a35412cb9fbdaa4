//go:build darwin || freebsd

package graceful

import (
	"syscall"
	"unsafe"
)

// poll calls poll(2) without waiting.
func poll(fds unsafe.Pointer, n uintptr) syscall.Errno {
	_, _, errno := syscall.Syscall(syscall.SYS_POLL, uintptr(fds), n, 0)
	return errno
}
