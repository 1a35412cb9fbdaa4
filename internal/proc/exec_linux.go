package proc

import (
	"errors"
	"math/bits"
	"os"
	"runtime"
	"strings"
	"syscall"
	"unsafe"
)

// ErrNotMainThread is returned by ServeForks if it is not called on the main thread, and by Exec if
// ServeForks has not been called.
var ErrNotMainThread = errors.New("the main thread does not fork the processes of this program; call runtime.LockOSThread in a function init, and then ServeForks in the goroutine of main")

// ServeForks makes the calling thread fork all processes of this program, from now on, and calls
// main on another goroutine. The calling thread must be the main thread, and no process may have
// been started before. ServeForks returns only if it fails, and then it has not called main.
func ServeForks(main func()) error {
	if syscall.Gettid() != os.Getpid() {
		return ErrNotMainThread
	}
	forks := make(chan func())
	forker.mu.Lock()
	forker.forks = forks
	forker.isMain.Store(true)
	forker.mu.Unlock()
	go main()
	fork := <-forks
	// If this program was executed by Exec, blockedSignals are still blocked on this thread.
	// Unblock them, because processes inherit the blocked signals of the thread that forks them.
	maskSignals(unblockSignals(), blockedSignals)
	for ; ; fork = <-forks {
		fork()
	}
}

// blockedSignals are blocked from the call of Exec until the new program handles them. Otherwise
// such a signal would end the new program before it handles signals. The Go runtime does not let a
// program block SIGHUP, SIGINT and SIGTERM in that way.
var blockedSignals = []syscall.Signal{syscall.SIGUSR2}

// maskSignals changes the signal mask of the calling thread.
func maskSignals(operation uintptr, signals []syscall.Signal) {
	var set [128 / bits.UintSize]uint
	for _, s := range signals {
		set[(s-1)/bits.UintSize] |= 1 << ((s - 1) % bits.UintSize)
	}
	size := uintptr(8)
	// The kernel knows 128 signals on MIPS, and 64 on other processors. The size is in bytes.
	if strings.HasPrefix(runtime.GOARCH, "mips") {
		size = 16
	}
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, operation, uintptr(unsafe.Pointer(&set)), 0, size, 0, 0)
}

// blockSignals and unblockSignals return the operations with which maskSignals blocks and unblocks
// signals. Their numbers on MIPS differ from those on other processors.
func blockSignals() uintptr {
	if strings.HasPrefix(runtime.GOARCH, "mips") {
		return 1
	}
	return 0
}

func unblockSignals() uintptr { return blockSignals() + 1 }

// Exec replaces this program by another one, as execve does: the processes of this program become
// children of the new one. The given files stay open under their file descriptors, and all other
// files are closed. Exec waits for a concurrent start of a process. The program must have called
// ServeForks. The function env returns the environment for the other program; Exec calls it
// immediately before the execve. Exec returns only if it fails, and has then changed nothing.
func Exec(path string, args []string, env func() []string, files []*os.File) (err error) {
	if !forker.isMain.Load() {
		return ErrNotMainThread
	}
	defer onForkingThread(func() {
		syscall.ForkLock.Lock() // while ForkLock is held, no process starts, and so none inherits the files
		defer syscall.ForkLock.Unlock()
		for _, f := range files {
			if err = setCloseOnExec(f, false); err != nil {
				return
			}
			defer setCloseOnExec(f, true)
		}
		maskSignals(blockSignals(), blockedSignals)
		defer maskSignals(unblockSignals(), blockedSignals)
		err = &os.PathError{Op: "execve", Path: path, Err: syscall.Exec(path, args, env())}
	})()
	return err
}

// setCloseOnExec sets or clears the close-on-exec flag of a file. Unlike File.Fd, it leaves the
// file in its blocking or non-blocking mode.
func setCloseOnExec(f *os.File, set bool) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var flags uintptr
	if set {
		flags = syscall.FD_CLOEXEC
	}
	var errno syscall.Errno
	err = conn.Control(func(fd uintptr) { _, _, errno = syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_SETFD, flags) })
	if errno != 0 {
		return os.NewSyscallError("fcntl", errno)
	}
	return err
}
