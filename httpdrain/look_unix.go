//go:build unix

package httpdrain

import (
	"net"
	"syscall"
)

// look reports whether there is something to read in nc's socket, be it the end, without reading it. A read with a deadline
// does not tell: when its deadline passes before it has begun, which happens where others use the processor, too, it returns
// without a look at the socket.
func look(nc net.Conn) (something, known bool) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return false, false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false, false
	}
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		for known = true; ; {
			_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
			if err == syscall.EINTR {
				continue
			}
			something = err != syscall.EAGAIN
			return
		}
	})
	return something, known && err == nil
}
