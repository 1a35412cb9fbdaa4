package listeners

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/swansong-go/swansong/internal/proc"
	"golang.org/x/sys/unix"
)

// takeSocket duplicates the socket with the given inode from another process, whichever descriptor
// that process uses for it. It returns nil without an error if the process has ended or does not
// have the socket open.
func takeSocket(k proc.Adoptable, inode uint64) (*os.File, error) {
	if k.PID == 0 {
		return nil, nil
	}
	pidfd, err := unix.PidfdOpen(k.PID, 0)
	if err != nil {
		return nil, nil // the process has ended
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
		theirs, err := strconv.Atoi(n.Name())
		if err != nil {
			continue
		}
		fd, err := unix.PidfdGetfd(pidfd, theirs, 0)
		if err != nil {
			return nil, os.NewSyscallError("pidfd_getfd", err)
		}
		unix.CloseOnExec(fd)
		f := os.NewFile(uintptr(fd), link)
		if inodeOf(f) == inode {
			return f, nil
		}
		f.Close() // meanwhile the process has closed the socket and reused its descriptor
	}
	return nil, nil
}

// inodeOf returns the inode of a file, which identifies a socket on this machine. After an error it
// returns 0.
func inodeOf(f *os.File) uint64 {
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	return info.Sys().(*syscall.Stat_t).Ino
}
