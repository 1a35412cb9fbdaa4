package shutdowntest

import "time"

// SetPatience sets when those are told of who run for too long by the clock on the wall.
func SetPatience(d time.Duration) { patience = d }
