package launcher

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/peer"
)

// ErrInUse is returned where another launcher has the directory.
var ErrInUse = errors.New("launcher: another launcher has this directory")

// lockPatience is for the lock of a launcher that was killed while it started a process: between its fork and its exec that
// has all that the launcher had open. And it is for a guardian that cleans up.
var lockPatience = time.Second // a test has a guardian with more

// ownDirectory makes the directory if it is not there, and takes its lock: that of the directory itself, which nobody can remove
// and leave the directory. Whoever can write to it can be taken for a process of ours, so nobody else may be able to.
func ownDirectory(dir string) (lock *os.File, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, &ConfigError{Field: "Dir", Rule: err.Error()}
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, &ConfigError{Field: "Dir", Rule: err.Error()}
	}
	switch {
	case !info.IsDir():
		return nil, &ConfigError{Field: "Dir", Rule: dir + " is no directory; a symbolic link will not do"}
	case info.Mode().Perm()&0o077 != 0:
		return nil, &ConfigError{Field: "Dir", Rule: fmt.Sprintf("%s is %v, others can look into it; it has to be 0700", dir, info.Mode().Perm())}
	case peer.OfAnother(info):
		return nil, &ConfigError{Field: "Dir", Rule: dir + " belongs to another user"}
	}
	lock, err = os.Open(dir)
	if err != nil {
		return nil, &ConfigError{Field: "Dir", Rule: err.Error()}
	}
	err = lockSoon(lock, nil)
	if err == nil {
		return lock, nil
	}
	lock.Close()
	if !isLocked(err) {
		return nil, &ConfigError{Field: "Dir", Rule: fmt.Sprintf("%s cannot be locked, which takes a local file system, on Linux or macOS: %v", dir, err)}
	}
	who := ""
	if pid := peer.Server(SocketIn(dir)); pid > 0 {
		who = fmt.Sprintf(" (pid %d)", pid)
	}
	return nil, fmt.Errorf("%w: %s%s; stop that one first, or give this one a directory of its own", ErrInUse, dir, who)
}

// lockSoon takes the lock, or returns why it could not, for as long as there is patience and nobody says to leave.
func lockSoon(lock *os.File, leave <-chan os.Signal) error {
	late := time.After(lockPatience)
	for {
		err := tryLock(lock)
		if !isLocked(err) {
			return err
		}
		select {
		case <-time.After(5 * time.Millisecond): // a wait for the lock could not be given up
		case <-leave:
			return err
		case <-late:
			return err
		}
	}
}
