//go:build unix

package statefile

import (
	"errors"
	"os"
	"syscall"
)

// tryLock takes a lock that the kernel releases when the process ends, however it ends.
func tryLock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

// isLocked reports whether err means that another process has the lock.
func isLocked(err error) bool { return errors.Is(err, syscall.EWOULDBLOCK) }
