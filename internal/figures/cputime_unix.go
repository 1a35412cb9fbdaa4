//go:build unix

package figures

import (
	"syscall"
	"time"
)

// CPUTime returns the processor time that this process has used, including the kernel.
func CPUTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
