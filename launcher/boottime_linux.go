package launcher

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot is a clock that another program on this machine reads, too, and that nobody sets.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
