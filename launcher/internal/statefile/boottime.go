package statefile

import (
	"time"

	"github.com/swansong-go/swansong/internal/proc"
)

// ToMillis returns a time as milliseconds since the machine was booted. Until the next boot, the
// result means the same to every program on the machine, even if the clock is set meanwhile.
// ToMillis returns 0 for the zero time.
func ToMillis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	// The number 0 stands for the zero time, so the number of any other time is at least 1.
	return max(1, (sinceBoot() - time.Since(t)).Milliseconds())
}

// FromMillis is the inverse of ToMillis, except that fractions of a millisecond are lost. The
// result has a monotonic clock reading, so a change of the clock does not move deadlines.
func FromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(ms)*time.Millisecond - sinceBoot())
}

// StartTime returns the time at which a process was started.
func StartTime(k proc.Adoptable, now time.Time) time.Time {
	// The kernel counts start times in ticks of this length on all platforms that Go supports.
	const tick = 10 * time.Millisecond
	return now.Add(time.Duration(k.Born)*tick - sinceBoot())
}
