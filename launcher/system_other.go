//go:build !unix

package launcher

import (
	"errors"
	"os"
	"syscall"
)

func tryLock(*os.File) error { return errors.New("launchers run on Linux and macOS only") }

func isLocked(error) bool { return false }

const sigcont = syscall.Signal(0)

// stopSignals are those that a group may name.
var stopSignals = map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT, "SIGQUIT": syscall.SIGQUIT,
	"SIGHUP": syscall.SIGHUP}
