//go:build unix

package main

import (
	"os"
	"strconv"
	"syscall"
)

// keepDescriptors makes the descriptors that the launcher has inherited its own: no process that it
// starts gets them. Otherwise a pipe or a lock of the program that has started the launcher would
// stay open as long as any of the processes. What Go itself opens is never inherited.
//
// The numbers 0 to 2 are left out: the launcher passes on its stdin, stdout and stderr only where
// it means to. The list also has the descriptor through which the list was read. That one is
// closed, and to mark a closed descriptor does nothing.
func keepDescriptors() {
	open, err := os.ReadDir("/dev/fd")
	if err != nil { // some containers have /proc, but no /dev/fd
		open, _ = os.ReadDir("/proc/self/fd")
	}
	for _, f := range open {
		if fd, err := strconv.Atoi(f.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}
