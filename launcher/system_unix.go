//go:build unix

package launcher

import (
	"errors"
	"os"
	"syscall"
)

// tryLock takes a lock that ends with the process, whatever ends that.
func tryLock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

// isLocked says whether another one has the lock, rather than that there can be none.
func isLocked(err error) bool { return errors.Is(err, syscall.EWOULDBLOCK) }

const sigcont = syscall.SIGCONT

// stopSignals are those that a group may name.
var stopSignals = map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT, "SIGQUIT": syscall.SIGQUIT,
	"SIGHUP":  syscall.SIGHUP,
	"SIGUSR1": syscall.SIGUSR1, "SIGUSR2": syscall.SIGUSR2}
