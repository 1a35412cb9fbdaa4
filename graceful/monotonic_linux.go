package graceful

import (
	"fmt"
	"syscall"
	"unsafe"
)

// monotonicTime returns the line MONOTONIC_USEC of a message to systemd, which must follow the line
// RELOADING=1. Its value is a time of CLOCK_MONOTONIC, which package time does not return.
func monotonicTime() string {
	const clockMonotonic = 1
	var now syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&now)), 0); errno != 0 {
		return ""
	}
	return fmt.Sprintf("\nMONOTONIC_USEC=%d", now.Nano()/1000)
}
