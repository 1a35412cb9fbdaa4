//go:build !(linux || darwin || freebsd)

package graceful

import "os"

// columns returns 0: on this system it is unknown whether f is a terminal that understands escape
// sequences.
func columns(*os.File) int { return 0 }
