package graceful

import (
	"syscall"
	"unsafe"
)

// poll calls poll(2) without waiting. Linux on arm64 has only ppoll.
func poll(fds unsafe.Pointer, n uintptr) syscall.Errno {
	var now syscall.Timespec
	_, _, errno := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(fds), n, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return errno
}
