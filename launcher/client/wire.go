package client

import (
	"math"
	"time"
)

// seconds rounds up: 300 ms are not none.
func seconds(d time.Duration) int32 { return int32(min((d+time.Second-1)/time.Second, math.MaxInt32)) }

func millis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// duration takes the finer of the two that the wire has.
func duration(sec int32, ms int64) time.Duration {
	if ms != 0 {
		return time.Duration(max(0, min(ms, math.MaxInt64/int64(time.Millisecond)))) * time.Millisecond
	}
	return time.Duration(max(0, sec)) * time.Second
}

func clamp(n int) int32 { return int32(min(max(0, n), math.MaxInt32)) }
