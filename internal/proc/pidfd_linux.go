package proc

import (
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// sysPidfdOpen is the number of the system call pidfd_open on every architecture except MIPS. On
// MIPS, and before Linux 5.3, processes that are not children of this process are polled instead.
const sysPidfdOpen = 434

func pidfdOpen(pid int) int {
	if strings.HasPrefix(runtime.GOARCH, "mips") {
		return -1
	}
	fd, _, errno := syscall.Syscall(sysPidfdOpen, uintptr(pid), 0, 0)
	if errno != 0 {
		return -1
	}
	return int(fd)
}

// pollable registers a pidfd with the runtime's poller, so that waiting for it does not block an OS
// thread.
func pollable(fd int) *os.File {
	syscall.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), "pidfd")
}

// awaitPidfd returns true when the process has ended. It returns false at the deadline, or if the
// pidfd cannot be polled. A zero deadline means no limit.
func awaitPidfd(f *os.File, deadline time.Time) bool {
	if err := f.SetReadDeadline(deadline); err != nil {
		return false
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	return conn.Read(hasEnded) == nil
}

// hasEnded reports whether the process to which a pidfd refers has ended.
func hasEnded(fd uintptr) bool { return poll(fd, pollIn, 0) }

const pollIn, pollPri = 1, 2

// poll calls ppoll(2) and reports whether one of the events is pending or occurs within the given
// time.
func poll(fd uintptr, events int16, within time.Duration) bool {
	type pollFd struct {
		fd              int32
		events, revents int16
	}
	p := pollFd{int32(fd), events, 0}
	limit := syscall.NsecToTimespec(int64(within))
	n, _, errno := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
	return errno == 0 && n == 1
}

// waitid waits for a child to exit and does not reap it. It blocks an OS thread.
func waitid(pid int) error {
	const pPid, wExited, wNoWait = 1, 4, 0x01000000
	var info [128]byte
	_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, pPid, uintptr(pid), uintptr(unsafe.Pointer(&info)), wExited|wNoWait, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// isAlive reports whether the member is running. If another process has reused its pid, it is not.
func (m Member) isAlive() bool {
	now, ok := stat(m.PID)
	return ok && now.start == m.start && !now.zombie
}

// open returns a pidfd of the member and reports whether the member is alive. If another process
// has reused the pid, the member is not alive. fd is negative if the kernel does not support
// pidfds.
func (m Member) open() (fd int, alive bool) {
	fd = pidfdOpen(m.PID)
	if m.isAlive() {
		return fd, true
	}
	if fd >= 0 {
		syscall.Close(fd)
	}
	return -1, false
}

// signal sends sig to the member. If another process has reused the member's pid, signal sends
// nothing.
func (m Member) signal(sig syscall.Signal) {
	const sysPidfdSendSignal = 424
	fd, alive := m.open()
	switch {
	case !alive:
	case fd < 0:
		syscall.Kill(m.PID, sig)
	default:
		syscall.Syscall6(sysPidfdSendSignal, uintptr(fd), uintptr(sig), 0, 0, 0, 0)
		syscall.Close(fd)
	}
}

// await waits until the member has ended or the deadline has passed. A zombie counts as ended,
// because only its parent can reap it.
func (m Member) await(deadline time.Time) {
	fd, alive := m.open()
	if !alive {
		return
	}
	if fd >= 0 {
		f := pollable(fd)
		defer f.Close()
		if awaitPidfd(f, deadline) {
			return
		}
	}
	for time.Now().Before(deadline) {
		if fd, alive := m.open(); !alive {
			return
		} else if fd >= 0 {
			syscall.Close(fd)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
