//go:build !unix

package graceful

import "os"

var uncatchable = []os.Signal{os.Kill}
