//go:build unix

package graceful

import (
	"os"
	"syscall"
)

var uncatchable = []os.Signal{os.Kill, syscall.SIGSTOP}
