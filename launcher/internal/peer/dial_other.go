//go:build !linux

package peer

import (
	"context"
	"io/fs"
	"net"
	"os"
)

// DialOwned connects to the unix socket at path, if it is a socket of the user with this uid, and
// not a symbolic link.
func DialOwned(ctx context.Context, path string, uid int) (net.Conn, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if err := checkOwned(path, info.Mode()&fs.ModeSocket != 0, OwnerOf(info), uid); err != nil {
		return nil, err
	}
	var d net.Dialer
	return d.DialContext(ctx, "unix", path)
}
