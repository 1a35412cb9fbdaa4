package grpcdrain

import (
	"net"
	"syscall"
	"time"
)

// tcpUserTimeout is TCP_USER_TIMEOUT, which package syscall lacks on some architectures.
const tcpUserTimeout = 0x12

// setUserTimeout makes the kernel close c if the client does not acknowledge data for the duration
// d. By default the kernel resends the data for a quarter of an hour. grpc sets this time-out
// itself only for connections that are not wrapped.
func setUserTimeout(c net.Conn, d time.Duration) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		// Ignore an error of setsockopt, as package grpc does: the server also works without this
		// socket option.
		_ = raw.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(d.Milliseconds()))
		})
	}
}
