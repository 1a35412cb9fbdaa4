//go:build !linux

package launcher

import "time"

// sinceBoot is not needed where no process is kept.
func sinceBoot() time.Duration { return 0 }
