// Package peer restricts gRPC over unix sockets to processes of the same user.
//
// A socket has mode 0600, in a directory with mode 0700, so other users cannot connect. In
// addition, each end checks the credentials that the kernel has of the other end before it sends or
// receives anything. That protects against a directory that was opened to other users later, and
// against a socket that another user has put in place of the expected one.
package peer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"
)

// Info identifies the process at the other end of a connection, as the kernel knows it.
type Info struct {
	credentials.CommonAuthInfo
	UID, PID int
}

// AuthType makes Info a [credentials.AuthInfo], so a server finds it by peer.FromContext of grpc.
func (Info) AuthType() string { return "peer" }

// ErrForeign is returned if the process at the other end belongs to another user.
var ErrForeign = errors.New("peer: the other end of the socket belongs to another user")

// MaxPath is the maximum length in bytes of the path of a unix socket, on all systems: that of
// macOS, where 104 bytes include a zero byte. A configuration that works on one system thus works
// on others.
const MaxPath = 103

// Listen listens on a new socket that only the same user can connect to. It replaces a socket that
// already exists at the path. The caller must ensure that no process listens on that socket.
//
// A socket file stays when the process that listened on it is killed, so it must be removed before
// another one can be made. A file that is no socket is not removed: net.Listen then fails.
func Listen(path string) (net.Listener, error) {
	if len(path) > MaxPath {
		return nil, fmt.Errorf("peer: the path of a socket can have at most %d bytes, and this one has %d: %s; use a directory with a shorter path", MaxPath, len(path), path)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSocket != 0 {
		os.Remove(path)
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("peer: %w", err)
	}
	// Until the mode of the socket is changed, other users are kept out only by the mode of the
	// directory, 0700. A directory of package userdir can be entered by all; there, the check of
	// the credentials refuses them.
	if err := os.Chmod(path, 0o600); err != nil {
		ln.Close()
		return nil, fmt.Errorf("peer: %w", err)
	}
	return ln, nil
}

// Server returns the pid of the process that listens at a path. It returns 0 if no process listens
// there, or its pid is unknown.
//
// On Linux that is the process that has called listen, also if another one accepts on the socket
// now.
func Server(path string) int {
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return 0
	}
	defer conn.Close()
	info, err := credentialsOf(conn.(*net.UnixConn))
	if err != nil {
		return 0
	}
	return info.PID
}

// Credentials checks the user of the process at the other end of a unix socket. Nothing is
// encrypted, because other processes cannot read what is sent over a unix socket.
func Credentials() credentials.TransportCredentials { return creds{owner: -1} }

// CredentialsIn is like [Credentials], for clients of a socket in the directory dir. A client that
// runs as root also accepts a server of the directory's owner, provided that only the owner can
// have put the socket there. Other clients accept only servers of their own user and of root.
func CredentialsIn(dir string) credentials.TransportCredentials {
	info, err := os.Stat(dir)
	if err != nil || os.Geteuid() != 0 || !info.IsDir() || info.Mode().Perm()&0o022 != 0 {
		return Credentials()
	}
	return creds{owner: OwnerOf(info)}
}

// CredentialsOf accepts only processes of the user with this uid at the other end.
func CredentialsOf(uid int) credentials.TransportCredentials { return creds{owner: uid, only: true} }

// creds checks that the other end belongs to the same user, to root, or to the user with the uid
// owner. If owner is -1, there is no such additional user. If the field named only is true, owner
// is the only user that is accepted, and not even root is.
type creds struct {
	owner int
	only  bool
}

// Both handshakes do the same, and send nothing: the kernel knows the credentials of both ends.
func (c creds) ClientHandshake(_ context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c.check(conn)
}

func (c creds) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c.check(conn)
}

func (creds) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "peer"}
}
func (c creds) Clone() credentials.TransportCredentials { return c }
func (creds) OverrideServerName(string) error           { return nil }

func (c creds) check(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	unix, ok := conn.(syscall.Conn)
	if !ok || conn.LocalAddr().Network() != "unix" {
		return nil, nil, fmt.Errorf("peer: a %s connection has no credentials; only unix sockets do", conn.RemoteAddr().Network())
	}
	info, err := credentialsOf(unix)
	if err != nil {
		return nil, nil, err
	}
	if (c.only || !trusted(info.UID)) && info.UID != c.owner {
		return nil, nil, fmt.Errorf("%w: the process with pid %d has uid %d", ErrForeign, info.PID, info.UID)
	}
	info.SecurityLevel = credentials.PrivacyAndIntegrity
	return conn, info, nil
}

// checkOwned returns an error if a file is not a socket of the user with the uid want.
func checkOwned(path string, isSocket bool, owner, want int) error {
	if !isSocket || owner != want {
		return fmt.Errorf("%w: %s is not a socket of the user with uid %d", ErrForeign, path, want)
	}
	return nil
}

// trusted reports whether the user with this uid may connect: the user of this process, or root,
// which could do everything anyway. The user of this process is its effective uid, because that one
// owns the files that it makes.
func trusted(uid int) bool { return uid == os.Geteuid() || uid == 0 }
