//go:build !unix

package figures

import "time"

// CPUTime returns 0, because it is implemented on Unix only.
func CPUTime() time.Duration { return 0 }
