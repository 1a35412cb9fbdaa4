package proc

import (
	"fmt"
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

// refusesSignals reports whether this program may not signal the member, because it runs as another
// user.
func (m Member) refusesSignals() bool { return syscall.Kill(m.PID, 0) == syscall.EPERM }

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
	if f := m.pidfd(); f != nil {
		defer f.Close()
		if awaitPidfd(f, deadline) {
			return
		}
	}
	m.poll(deadline)
}

// exitStatus returns the exit status of a process that has ended, even if it is not a child of this
// program. The kernel tells it since Linux 6.15, when the parent of the process has reaped it;
// exitStatus waits 100 ms for that.
func exitStatus(pidfd *os.File) (status syscall.WaitStatus, ok bool) {
	if pidfd == nil {
		return 0, false
	}
	const getInfo, hasExit = 0xC040FF0B, 1 << 3 // PIDFD_GET_INFO and PIDFD_INFO_EXIT of linux/pidfd.h
	info := struct {
		mask uint64
		_    [13]uint32
		code int32
	}{mask: hasExit}
	conn, err := pidfd.SyscallConn()
	if err != nil {
		return 0, false
	}
	conn.Control(func(fd uintptr) {
		poll(fd, 0, 100*time.Millisecond) // poll waits for POLLHUP even if no event is requested
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, getInfo, uintptr(unsafe.Pointer(&info)))
		ok = errno == 0 && info.mask&hasExit != 0
	})
	return syscall.WaitStatus(info.code), ok
}

// set stores the exit status of a process that is not a child of this program.
func (e *Exit) set(status syscall.WaitStatus) {
	e.Code, e.Unseen = status.ExitStatus(), false
	if e.Status = fmt.Sprintf("exit status %d", e.Code); status.Signaled() {
		e.Signal, e.Status = status.Signal(), "signal: "+status.Signal().String()
	}
	if status.CoreDump() {
		e.Status += " (core dumped)"
	}
}

// pidfd returns a pidfd of the member, nil if the member has ended or the kernel does not support
// pidfds.
func (m Member) pidfd() *os.File {
	if fd, alive := m.open(); alive && fd >= 0 {
		return pollable(fd)
	}
	return nil
}

// poll asks again and again whether the member has ended, until the deadline.
func (m Member) poll(deadline time.Time) {
	for time.Now().Before(deadline) {
		if fd, alive := m.open(); !alive {
			return
		} else if fd >= 0 {
			syscall.Close(fd)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
