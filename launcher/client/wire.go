package client

import (
	"math"
	"time"
)

// seconds returns d in seconds, rounded up so that 300 ms does not become 0.
func seconds(d time.Duration) int32 { return int32(min((d+time.Second-1)/time.Second, math.MaxInt32)) }

func millis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// duration returns a duration from a message of the protocol, which contains it in seconds and, if
// ms is set, more exactly in milliseconds.
func duration(sec int32, ms int64) time.Duration {
	if ms != 0 {
		return time.Duration(max(0, min(ms, math.MaxInt64/int64(time.Millisecond)))) * time.Millisecond
	}
	return time.Duration(max(0, sec)) * time.Second
}

func clamp(n int) int32 { return int32(min(max(0, n), math.MaxInt32)) }
