package grpcdrain

import (
	"net"
	"syscall"
	"time"
)

// tcpUserTimeout is TCP_USER_TIMEOUT, which package syscall lacks on some architectures.
const tcpUserTimeout = 0x12

// setUserTimeout makes the kernel close c if data is not acknowledged for d, instead of resending
// it for a quarter of an hour. grpc does that itself only for connections that are not wrapped.
func setUserTimeout(c net.Conn, d time.Duration) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		// An error is ignored, as grpc does, because the server also works without the option.
		_ = raw.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(d.Milliseconds()))
		})
	}
}
