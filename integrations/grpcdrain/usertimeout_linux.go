package grpcdrain

import (
	"net"
	"syscall"
	"time"
)

const tcpUserTimeout = 0x12 // package syscall does not have TCP_USER_TIMEOUT on every architecture

// setUserTimeout does for a connection what grpc does only where nobody has wrapped it: data that is not acknowledged
// for so long ends the connection, not after the quarter of an hour for which the kernel would repeat it.
func setUserTimeout(c net.Conn, d time.Duration) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		// What cannot be set is left as it was: it is an optimization, and grpc does not insist either.
		_ = raw.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(d.Milliseconds()))
		})
	}
}
