package statefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/output"
	"github.com/swansong-go/swansong/launcher/internal/peer"
	"github.com/swansong-go/swansong/launcher/internal/userdir"
)

// Path returns the path of the state file in the directory of a launcher. Only a launcher that has
// the lock of the directory writes it.
func Path(dir string) string { return filepath.Join(dir, "state.json") }

// SocketIn returns the path of the launcher's own socket.
func SocketIn(dir string) string { return filepath.Join(dir, "launcher.sock") }

// A socket of a process has the id of the process and one of these suffixes in its name. The names
// of its pipes end in one of [output.Streams].
const (
	LifecycleSocket = "sock" // the socket of the lifecycle service
	NotifySocket    = "note" // the socket for sd_notify(3) messages
	ServiceSocket   = "app"  // a socket that the program can use for its own service
)

// FileOf returns the path of a file of a process in the directory of its launcher.
func FileOf(dir, id, suffix string) string { return filepath.Join(dir, id+"."+suffix) }

// RemoveFilesOf removes the sockets and pipes of a process that has ended. It ignores errors: most
// of these files do not exist, and ids are not used again, so what is left harms no other process.
func RemoveFilesOf(dir, id string) {
	sockets := []string{LifecycleSocket, NotifySocket, ServiceSocket}
	for _, suffix := range append(sockets, output.Streams[:]...) {
		os.Remove(FileOf(dir, id, suffix))
	}
	userdir.RemoveFilesOf(dir, id, sockets)
}

// RemoveSockets removes the launcher's own sockets.
func RemoveSockets(dir string) {
	os.Remove(SocketIn(dir))
	userdir.Remove(dir)
}

// ErrInUse is the error if another launcher holds the lock of the directory.
var ErrInUse = errors.New("launcher: another launcher has this directory")

// LockTimeout is how long a launcher waits for the lock of a directory. Two others can hold the
// lock for a short time: the child of a launcher that was killed while it started a process, which
// has a copy of the lock until it calls exec; and the guardian of a killed launcher, which ends the
// processes left behind. Tests change LockTimeout.
var LockTimeout = time.Second

// Lock makes the directory if it is missing, checks that no other user can write to it, and locks
// it until the file is closed. The lock is on the directory itself, which cannot be replaced while
// it is locked. The error matches [ErrInUse] if another launcher has the lock.
func Lock(dir string) (lock *os.File, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	// If another user could write to the directory, a process of that user could pretend to be a
	// process of this launcher.
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, err
	}
	switch {
	case !info.IsDir():
		return nil, fmt.Errorf("%s is not a directory; a symbolic link is not accepted either", dir)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s has mode %v, which gives access to other users; change it to 0700", dir, info.Mode().Perm())
	case peer.OfAnother(info):
		return nil, fmt.Errorf("%s belongs to another user", dir)
	}
	lock, err = os.Open(dir)
	if err != nil {
		return nil, err
	}
	err = WaitForLock(lock, nil)
	if err == nil {
		return lock, nil
	}
	lock.Close()
	if !isLocked(err) {
		return nil, fmt.Errorf("cannot lock %s, which needs a local file system on Linux or macOS: %v", dir, err)
	}
	owner := ""
	if pid := peer.Server(SocketIn(dir)); pid > 0 {
		owner = fmt.Sprintf(" (pid %d)", pid)
	}
	return nil, fmt.Errorf("%w: %s%s; stop the other launcher first, or give this launcher a directory of its own", ErrInUse, dir, owner)
}

// WaitForLock takes the lock on an open directory. It fails after LockTimeout, or when a signal
// arrives on cancel.
func WaitForLock(dir *os.File, cancel <-chan os.Signal) error {
	timeout := time.After(LockTimeout)
	for {
		err := tryLock(dir)
		if !isLocked(err) {
			return err
		}
		select {
		case <-time.After(5 * time.Millisecond): // try again and again, because a blocking flock could not be cancelled
		case <-cancel:
			return err
		case <-timeout:
			return err
		}
	}
}
