package listeners

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
	"golang.org/x/sys/unix"
)

// takeSocket duplicates the socket with the given inode from another process, whichever descriptor
// that process uses for it. It returns nil without an error if the process has ended or does not
// have the socket open.
func takeSocket(k proc.Adoptable, inode uint64) (taken *os.File, err error) {
	err = eachSocket(k, func(f *os.File) bool {
		if inodeOf(f) == inode {
			taken = f
		}
		return taken == nil
	}, inode)
	return taken, err
}

// SocketsOf returns the sockets on which processes listen. It leaves out the sockets of processes
// that this program may not inspect.
func SocketsOf(by []proc.Adoptable) (all []statefile.Socket) {
	for _, k := range by {
		eachSocket(k, func(f *os.File) bool {
			defer f.Close()
			known := slices.ContainsFunc(all, func(s statefile.Socket) bool { return s.Inode == inodeOf(f) })
			if listening, err := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_ACCEPTCONN); known || err != nil || listening == 0 {
				return true
			}
			if ln, err := net.FileListener(f); err == nil {
				all = append(all, statefile.Socket{Listen: spec.Listen{Network: ln.Addr().Network()}, Inode: inodeOf(f), Address: ln.Addr().String()})
				// Closing this duplicate must not remove the file of a socket that processes listen
				// on.
				if ln, ok := ln.(*net.UnixListener); ok {
					ln.SetUnlinkOnClose(false)
				}
				ln.Close()
			}
			return true
		})
	}
	return all
}

// eachSocket calls f with a duplicate of each socket that another process has open, until f returns
// false. If inodes are given, it duplicates only those sockets. It does nothing if the process has
// ended. f has to close the duplicates that it is called with.
func eachSocket(k proc.Adoptable, f func(*os.File) (next bool), inodes ...uint64) error {
	if k.PID == 0 {
		return nil
	}
	// Open the pidfd first, and then check with Alive that the pid is still that of the process.
	// The pidfd goes on to refer to the same process, even if that ends and another one gets its
	// pid.
	pidfd, err := unix.PidfdOpen(k.PID, 0)
	if err != nil {
		return nil // the process has ended, and has no sockets any more
	}
	defer unix.Close(pidfd)
	if !k.Alive() {
		return nil
	}
	dir := filepath.Join("/proc", strconv.Itoa(k.PID), "fd")
	names, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, n := range names {
		link, _ := os.Readlink(filepath.Join(dir, n.Name()))
		var inode uint64
		if _, err := fmt.Sscanf(link, "socket:[%d]", &inode); err != nil || len(inodes) > 0 && !slices.Contains(inodes, inode) {
			continue
		}
		theirs, err := strconv.Atoi(n.Name())
		if err != nil {
			continue
		}
		fd, err := unix.PidfdGetfd(pidfd, theirs, 0)
		if err != nil {
			return os.NewSyscallError("pidfd_getfd", err)
		}
		unix.CloseOnExec(fd)
		file := os.NewFile(uintptr(fd), link)
		if inodeOf(file) != inode {
			// Skip it: meanwhile the process has closed the socket and reused its descriptor.
			file.Close()
			continue
		}
		if !f(file) {
			return nil
		}
	}
	return nil
}

// inodeOf returns the inode of a file, which identifies a socket on this machine for as long as the
// socket is open. After an error it returns 0, which no socket has.
func inodeOf(f *os.File) uint64 {
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	return info.Sys().(*syscall.Stat_t).Ino
}
