//go:build linux || darwin || freebsd

package graceful

import (
	"syscall"
	"unsafe"
)

// canDetectLostOutput reports whether isOutputLost and isTerminalLost work on this system.
const canDetectLostOutput = true

const (
	// The event POLLERR of poll(2). Linux reports it for the write end of a pipe that no process
	// reads.
	pollErr = 0x8
	// The event POLLHUP of poll(2). Systems other than Linux report it for the write end of a pipe
	// that no process reads. All systems report it for a socket whose connection is closed.
	pollHup = 0x10
)

type pollFd struct {
	fd int32
	// The field events of the struct of C. It stays 0: poll reports pollErr and pollHup without a
	// request.
	_       int16
	revents int16
}

// isOutputLost reports whether standard output or standard error is a pipe or a socket that no
// process reads any more.
func isOutputLost() bool { return isLost(1) || isLost(2) }

// isTerminalLost reports whether standard input, standard output or standard error is a terminal
// that has been closed.
func isTerminalLost() bool {
	for fd := range int32(3) {
		var st syscall.Stat_t
		if syscall.Fstat(int(fd), &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFCHR && isLost(fd) {
			return true
		}
	}
	return false
}

// isLost reports whether a file descriptor is a pipe without a reader, or a terminal that has
// closed.
func isLost(fd int32) bool {
	p := pollFd{fd: fd}
	return poll(unsafe.Pointer(&p), 1) == 0 && p.revents&(pollErr|pollHup) != 0
}
