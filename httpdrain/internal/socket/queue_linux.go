package socket

import (
	"net"
	"syscall"
)

// HasQueued reports whether a connection is known to be in the accept queue of ln. A deadline that
// has passed in Accept does not prove that the queue is empty: on a busy machine the Go runtime
// handles an expired timer before it asks the kernel for new connections.
func HasQueued(ln net.Listener) (queued bool) {
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
		queued = n > 0
	})
	return queued
}
