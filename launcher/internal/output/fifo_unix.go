//go:build unix

package output

import (
	"os"
	"syscall"
)

// MakeFIFO creates a named pipe and opens both ends. The next launcher finds the pipe by its path.
//
// The process gets w, which is open for reading as well, so the pipe always has a reader: while no
// launcher runs, the process does not die of SIGPIPE, and the pipe keeps its content for the next
// reader. The process does not write to the log file itself, although no program would then have to
// read a pipe while no launcher runs: the log would have no size limit, and a disk that hangs would
// block the process.
func MakeFIFO(path string) (r, w *os.File, err error) {
	os.Remove(path)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		return nil, nil, &os.PathError{Op: "mkfifo", Path: path, Err: err}
	}
	// The pipe is opened with package syscall: package os would open it in non-blocking mode, which
	// processes do not expect of stdout.
	fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	w = os.NewFile(uintptr(fd), path)
	if r, err = OpenFIFO(path); err != nil {
		w.Close()
		return nil, nil, err
	}
	return r, w, nil
}

// OpenFIFO opens the read end of a named pipe. It does not wait for a process that writes
// (O_NONBLOCK). Reads of the file that it returns wait on the poller of package os, so they have
// deadlines.
func OpenFIFO(path string) (*os.File, error) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}
