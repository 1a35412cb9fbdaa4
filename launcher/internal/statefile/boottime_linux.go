package statefile

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot returns the time since boot: the same for all processes, and never adjusted.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
