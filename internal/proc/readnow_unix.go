//go:build unix

package proc

import (
	"os"
	"syscall"
)

// ReadNow reads the bytes that are available in f, without waiting for more. If there are none, it
// returns 0.
func ReadNow(f *os.File, p []byte) (n int, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failure error
	err = conn.Read(func(fd uintptr) bool {
		for {
			if n, failure = syscall.Read(int(fd), p); failure != syscall.EINTR {
				return true
			}
		}
	})
	if err == nil {
		err = failure
	}
	return max(n, 0), err
}
