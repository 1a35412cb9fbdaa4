package httpdrain

import (
	"net"
	"syscall"
)

// waiting reports whether somebody waits to be accepted. That a deadline passes in Accept does not tell: while the processors
// are busy, the runtime learns that a timer has fired before it asks who has come.
func waiting(ln net.Listener) (somebody bool) {
	sc, ok := ln.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	raw.Control(func(fd uintptr) {
		poll, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
		if err != nil {
			return
		}
		defer syscall.Close(poll)
		if syscall.EpollCtl(poll, syscall.EPOLL_CTL_ADD, int(fd), &syscall.EpollEvent{Events: syscall.EPOLLIN}) != nil {
			return
		}
		n, _ := syscall.EpollWait(poll, make([]syscall.EpollEvent, 1), 0)
		somebody = n > 0
	})
	return somebody
}
