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

// ErrNotMainThread is returned by ServeForks and Exec.
var ErrNotMainThread = errors.New("not on the main thread of the program; call runtime.LockOSThread in a function init, and then this function from main")

// ServeForks makes the calling thread fork all processes of this program, from now on. It has to be
// the main thread, and no process may have been started before. It returns only an error.
func ServeForks() error {
	if syscall.Gettid() != os.Getpid() {
		return ErrNotMainThread
	}
	forks := make(chan func())
	forker.mu.Lock()
	forker.forks = forks
	forker.isMain.Store(true)
	forker.mu.Unlock()
	fork := <-forks
	maskSignals(unblockSignals(), heldSignals) // no process inherits what Exec has blocked
	for ; ; fork = <-forks {
		fork()
	}
}

// heldSignals are held back from the time of Exec until the program that is executed handles them.
// Otherwise they would end it before. The Go runtime does not let a program hold back SIGHUP, SIGINT
// and SIGTERM in that way.
var heldSignals = []syscall.Signal{syscall.SIGUSR2}

// maskSignals changes the signal mask of the calling thread.
func maskSignals(how uintptr, signals []syscall.Signal) {
	var set [128 / bits.UintSize]uint
	for _, s := range signals {
		set[(s-1)/bits.UintSize] |= 1 << ((s - 1) % bits.UintSize)
	}
	size := uintptr(8)
	if strings.HasPrefix(runtime.GOARCH, "mips") { // which has 128 signals
		size = 16
	}
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, how, uintptr(unsafe.Pointer(&set)), 0, size, 0, 0)
}

// blockSignals and unblockSignals are values of how for maskSignals. MIPS has other ones.
func blockSignals() uintptr {
	if strings.HasPrefix(runtime.GOARCH, "mips") {
		return 1
	}
	return 0
}

func unblockSignals() uintptr { return blockSignals() + 1 }

// Exec replaces this program by another one, whose children the processes of this one become. These
// files stay open, with their numbers, and all others are closed. No process is being started
// meanwhile. Exec needs ServeForks. It returns only an error, after which everything is as before.
func Exec(path string, args, env []string, files []*os.File) (err error) {
	if !forker.isMain.Load() {
		return ErrNotMainThread
	}
	defer onForkingThread(func() {
		syscall.ForkLock.Lock() // so that no process inherits the files
		defer syscall.ForkLock.Unlock()
		for _, f := range files {
			if err = setCloseOnExec(f, false); err != nil {
				return
			}
			defer setCloseOnExec(f, true)
		}
		maskSignals(blockSignals(), heldSignals)
		defer maskSignals(unblockSignals(), heldSignals)
		err = &os.PathError{Op: "execve", Path: path, Err: syscall.Exec(path, args, env)}
	})()
	return err
}

// setCloseOnExec sets or clears the flag without changing the file to blocking mode, as File.Fd
// would.
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
