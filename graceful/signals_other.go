//go:build !unix

package graceful

import "os"

var (
	uncatchable = []os.Signal{os.Kill}
	brokenPipe  os.Signal // this system has no such signal
)
