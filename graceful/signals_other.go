//go:build !unix

package graceful

import "os"

var (
	uncatchable = []os.Signal{os.Kill}
	brokenPipe  os.Signal // nil, because this system has no SIGPIPE
)
