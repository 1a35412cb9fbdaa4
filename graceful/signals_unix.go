//go:build unix

package graceful

import (
	"os"
	"syscall"
)

var uncatchable = []os.Signal{os.Kill, syscall.SIGSTOP}

// brokenPipe is the signal that a process receives when it writes to a pipe that has no reader.
var brokenPipe os.Signal = syscall.SIGPIPE
