package launcher

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/swansong-go/swansong/internal/proc"
	"golang.org/x/sys/unix"
)

// takeSocket gets a socket from a process that has it, wherever it has it. It returns nil without an error if the process
// does not have it (any more).
func takeSocket(k proc.Kept, inode uint64) (*os.File, error) {
	if k.PID == 0 {
		return nil, nil
	}
	pidfd, err := unix.PidfdOpen(k.PID, 0)
	if err != nil {
		return nil, nil // it has ended
	}
	defer unix.Close(pidfd)
	if !k.Alive() {
		return nil, nil
	}
	dir := filepath.Join("/proc", strconv.Itoa(k.PID), "fd")
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		link, _ := os.Readlink(filepath.Join(dir, n.Name()))
		if link != fmt.Sprintf("socket:[%d]", inode) {
			continue
		}
		their, err := strconv.Atoi(n.Name())
		if err != nil {
			continue
		}
		fd, err := unix.PidfdGetfd(pidfd, their, 0)
		if err != nil {
			return nil, os.NewSyscallError("pidfd_getfd", err)
		}
		unix.CloseOnExec(fd)
		f := os.NewFile(uintptr(fd), link)
		if inodeOf(f) == inode {
			return f, nil
		}
		f.Close() // it was closed, and the number is another file's
	}
	return nil, nil
}

func inodeOf(f *os.File) uint64 {
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	return info.Sys().(*syscall.Stat_t).Ino
}
