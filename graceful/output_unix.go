//go:build linux || darwin || freebsd

package graceful

import "unsafe"

// canDetectLostOutput reports whether isOutputLost works on this system.
const canDetectLostOutput = true

const (
	pollErr = 0x8  // POLLERR: Linux reports it for a pipe without a reader
	pollHup = 0x10 // POLLHUP: the other systems report it, and all report it for sockets
)

type pollFd struct {
	fd      int32
	_       int16 // events: the conditions below are reported without a request
	revents int16
}

// isOutputLost reports whether standard output or standard error is a pipe or a socket that no
// process reads any more.
func isOutputLost() bool {
	fds := [...]pollFd{{fd: 1}, {fd: 2}}
	if errno := poll(unsafe.Pointer(&fds), uintptr(len(fds))); errno != 0 {
		return false
	}
	for _, fd := range fds {
		if fd.revents&(pollErr|pollHup) != 0 {
			return true
		}
	}
	return false
}
