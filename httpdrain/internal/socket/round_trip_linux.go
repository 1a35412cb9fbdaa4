//go:build !386

package socket

import (
	"crypto/tls"
	"net"
	"syscall"
	"time"
	"unsafe"
)

// RoundTrip returns the kernel's estimate of the connection's round-trip time. ok is false if there
// is none.
func RoundTrip(nc net.Conn) (rtt time.Duration, ok bool) {
	if tc, ok := nc.(*tls.Conn); ok {
		nc = tc.NetConn()
	}
	sc, isSocket := nc.(syscall.Conn)
	if !isSocket {
		return 0, false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0, false
	}
	raw.Control(func(fd uintptr) {
		var info syscall.TCPInfo
		size := uint32(unsafe.Sizeof(info))
		_, _, errno := syscall.Syscall6(syscall.SYS_GETSOCKOPT, fd, syscall.IPPROTO_TCP, syscall.TCP_INFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
		rtt, ok = time.Duration(info.Rtt)*time.Microsecond, errno == 0 && info.Rtt > 0
	})
	return rtt, ok
}
