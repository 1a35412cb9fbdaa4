//go:build unix

package socket

import (
	"net"
	"syscall"
)

// HasUnread reports whether the socket of nc has data to read or has reached its end. The result
// unread is valid only if known is true. HasUnread does not read. A read with a short deadline
// could not replace HasUnread: on a busy machine the deadline may pass before the read has begun,
// and then the read returns without looking at the socket.
func HasUnread(nc net.Conn) (unread, known bool) {
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
			unread = err != syscall.EAGAIN
			return
		}
	})
	return unread, known && err == nil
}
