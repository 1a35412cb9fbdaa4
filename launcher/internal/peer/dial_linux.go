package peer

import (
	"context"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// DialOwned connects to the unix socket at path, if it is a socket of the user with this uid. That
// user may be able to write to the directory of the socket. It could put a symbolic link there, to
// a socket that only the calling process may use; DialOwned does not follow it.
func DialOwned(ctx context.Context, path string, uid int) (net.Conn, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if err := checkOwned(path, st.Mode&unix.S_IFMT == unix.S_IFSOCK, int(st.Uid), uid); err != nil {
		return nil, err
	}
	var d net.Dialer
	// The path in /proc leads to the file that was checked, even if another file is at the original
	// path by now.
	return d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", fd))
}
