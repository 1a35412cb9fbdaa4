// Package peer has gRPC speak over unix sockets with one's own user, and with nobody else.
//
// A socket is 0600 in a directory of 0700, which keeps others from connecting. That a directory was opened to others later,
// or that somebody put a socket of his own where ours is expected, is noticed by the credentials that the kernel has of the
// other side; each end looks at them before it says or hears anything.
package peer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	"google.golang.org/grpc/credentials"
)

// Info is who is at the other end, as the kernel says.
type Info struct {
	credentials.CommonAuthInfo
	UID, PID int
}

func (Info) AuthType() string { return "peer" }

// ErrForeign is returned where the other end belongs to somebody else.
var ErrForeign = errors.New("peer: the other end of the socket belongs to another user")

// MaxPath is the longest name that a unix socket can have everywhere.
const MaxPath = 103

// Listen listens on a new socket that its owner alone can connect to. What was left at its path by one that is gone is
// replaced; the caller makes sure that it is gone.
func Listen(path string) (net.Listener, error) {
	if len(path) > MaxPath {
		return nil, fmt.Errorf("peer: the name of a socket can have %d bytes, this one has %d: %s; use a directory with a shorter name", MaxPath, len(path), path)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSocket != 0 {
		os.Remove(path)
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("peer: %w", err)
	}
	// Between the two lines the directory, which is 0700, keeps others out.
	if err := os.Chmod(path, 0o600); err != nil {
		ln.Close()
		return nil, fmt.Errorf("peer: %w", err)
	}
	return ln, nil
}

// Server returns the process id of who listens at a path, as the kernel says, and 0 where nobody does, or nobody can know.
func Server(path string) int {
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return 0
	}
	defer conn.Close()
	info, err := of(conn.(*net.UnixConn))
	if err != nil {
		return 0
	}
	return info.PID
}

// Credentials checks both ends of connections over unix sockets. It encrypts nothing: nobody can listen in on those.
func Credentials() credentials.TransportCredentials { return creds{owner: -1} }

// CredentialsIn is Credentials for who asks at a socket in a directory. For root that is also the directory's owner, if nobody
// else can have put the socket there: whoever names such a directory asks its owner, and no one who has taken his place. To
// others root is no more than they are.
func CredentialsIn(dir string) credentials.TransportCredentials {
	info, err := os.Stat(dir)
	if err != nil || os.Geteuid() != 0 || !info.IsDir() || info.Mode().Perm()&0o022 != 0 {
		return Credentials()
	}
	return creds{owner: OwnerOf(info)}
}

// creds trust one user more; -1: none.
type creds struct{ owner int }

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
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, nil, fmt.Errorf("peer: a %s connection has no credentials; only unix sockets do", conn.RemoteAddr().Network())
	}
	info, err := of(unix)
	if err != nil {
		return nil, nil, err
	}
	if !trusted(info.UID) && info.UID != c.owner {
		return nil, nil, fmt.Errorf("%w: uid %d, pid %d", ErrForeign, info.UID, info.PID)
	}
	info.SecurityLevel = credentials.PrivacyAndIntegrity
	return conn, info, nil
}

// trusted is one's own user, and root, who could do it all anyway.
func trusted(uid int) bool { return uid == os.Geteuid() || uid == 0 }
