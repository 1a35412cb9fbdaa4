//go:build !linux

package statefile

import "time"

// sinceBoot returns 0. Its result is not needed, because processes outlive their launcher only on
// Linux.
func sinceBoot() time.Duration { return 0 }
