package shutdowntest

import "time"

// SetHangTimeout sets the real time after which the goroutines of a hanging run are printed.
func SetHangTimeout(d time.Duration) { hangTimeout = d }
