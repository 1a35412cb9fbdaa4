package proc

import (
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// The numbers of these system calls are the same everywhere but on MIPS, which goes without: there, and on kernels before
// 5.3, processes that are not ours are looked at now and then instead.
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

// pollable hands a pidfd to the runtime's poller, so that nobody waits for it on an OS thread of its own.
func pollable(fd int) *os.File {
	syscall.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), "pidfd")
}

// awaitPidfd returns true when the process has ended, and false at the deadline, or if the pidfd cannot be waited for.
// The zero deadline is never.
func awaitPidfd(f *os.File, deadline time.Time) bool {
	if err := f.SetReadDeadline(deadline); err != nil {
		return false
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	return conn.Read(ended) == nil
}

// ended reports whether the process of a pidfd has ended.
func ended(fd uintptr) bool { return poll(fd, pollIn, 0) }

const pollIn, pollPri = 1, 2

// poll is poll(2): it reports whether one of the events is there, or comes within the time.
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

// waitid waits on a thread of its own for a child to end, and does not reap it.
func waitid(pid int) error {
	const pPid, wExited, wNoWait = 1, 4, 0x01000000
	var info [128]byte
	_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, pPid, uintptr(pid), uintptr(unsafe.Pointer(&info)), wExited|wNoWait, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// open returns a pidfd of the member, unless it has gone and its number is somebody else's.
func (m Member) open() (fd int, alive bool) {
	fd = pidfdOpen(m.PID)
	now, ok := stat(m.PID)
	if ok && now.start == m.start && !now.zombie {
		return fd, true
	}
	if fd >= 0 {
		syscall.Close(fd)
	}
	return -1, false
}

// signal sends sig to the member and to nobody who has its number after it.
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

// await returns when the member has ended, or at the deadline. A zombie has ended: reaping it is its parent's business.
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
