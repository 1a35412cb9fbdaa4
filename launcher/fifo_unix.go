//go:build unix

package launcher

import (
	"os"
	"syscall"
)

// makeFIFO makes a pipe that has a name, so that the next launcher finds it, and opens both ends.
//
// The process has its end open for reading, too. So there always is a reader, and with no launcher it does not die of SIGPIPE;
// what is in the pipe waits for whoever reads next. Writing to the log itself would spare the guardian the reading, but then
// nobody could bound the log, and a disk that hangs would stop the process.
func makeFIFO(path string) (ours, theirs *os.File, err error) {
	os.Remove(path)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		return nil, nil, &os.PathError{Op: "mkfifo", Path: path, Err: err}
	}
	fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_CLOEXEC, 0) // by package os it would not block, and be a surprise to the process
	if err != nil {
		return nil, nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	theirs = os.NewFile(uintptr(fd), path)
	if ours, err = openFIFO(path); err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}

// openFIFO opens the end to read from.
func openFIFO(path string) (*os.File, error) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}
