// Package transport connects the launcher to the lifecycle service of a process: over a unix socket
// or over TCP with mutual TLS.
package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/launcher/client"
	"github.com/swansong-go/swansong/launcher/internal/mtls"
	"github.com/swansong-go/swansong/launcher/internal/peer"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// A Config says how to connect to a process.
type Config struct {
	Process    string // id of the process, for errors
	Transport  spec.Transport
	Poll       time.Duration // time between two calls, and longest pause between two attempts to connect
	MaxMessage int           // length in bytes of the longest answer that is accepted
	Alarm      func(error)   // called if certificates cannot be used
}

// A Connection is the connection to one process. All methods may be called concurrently.
//
// Calls of the protocol use conn directly. The state machine of the process decides when to call; a
// Connection only says how to reach the process.
type Connection struct {
	cfg    Config
	socket string       // path of the process's unix socket; not used if the process is reached over TCP
	owner  int          // uid of another user that the process runs as; -1: the launcher's user
	port   atomic.Int32 // port that the process has reported; 0: none yet

	mu   sync.Mutex
	conn *grpc.ClientConn // the gRPC connection; nil before Open
}

// New returns a connection that has not been opened.
func New(cfg Config) *Connection { return &Connection{cfg: cfg, owner: -1} }

// SetSocket sets the path of the process's unix socket, which is not used if the process is reached
// over TCP. The process runs as the user with the uid owner, or as the launcher's user if owner is
// -1. SetSocket is called once, before Env and Open.
func (c *Connection) SetSocket(path string, owner int) { c.socket, c.owner = path, owner }

// SplitAddress returns the parts of host:port. The error says what is wrong with the address.
func SplitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("the address %q does not have the form host:port", address)
	}
	port, err = strconv.Atoi(text)
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("the address %q has an invalid port; it has to be 0 to 65535", address)
	}
	return host, port, nil
}

// Env returns the environment variables that tell the process its own address and the path of the
// launcher's socket, launcherSocket. The variables for certificates and keys contain paths, never
// contents.
//
// Only the unix socket of the launcher is given, also with TCP: notifications need the credentials
// of the caller, which a TCP connection does not have.
func (c *Connection) Env(launcherSocket string) []string {
	t, address := c.cfg.Transport, c.socket
	var env []string
	if t.Network == "tcp" {
		address = client.TCP + t.Address
		for _, v := range [][2]string{{client.EnvCert, t.TLS.Cert}, {client.EnvKey, t.TLS.Key}, {client.EnvCA, t.TLS.CA}} {
			name := v[1]
			// An absolute path, because the process may have another working directory.
			if abs, err := filepath.Abs(name); err == nil {
				name = abs
			}
			env = append(env, v[0]+"="+name)
		}
	}
	return append(env, client.EnvAddress+"="+address, client.EnvLauncher+"="+launcherSocket)
}

// Open prepares the connection and returns it. It does not wait for the process, which does not
// have to listen yet. If the process runs already, certificates that cannot be read are no error:
// an alarm is raised, and calls fail until the files have been fixed.
//
// Package grpc connects at the first call, and again at a call after the connection was lost.
func (c *Connection) Open(running bool) (*grpc.ClientConn, error) {
	target, creds := "unix:"+c.socket, peer.Credentials()
	opts := []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(c.cfg.MaxMessage)),
		// The process may begin to listen at any time. So after a failed try, package grpc waits at
		// most the poll interval before the next one.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: c.cfg.Poll / 10, Multiplier: 1.6, Jitter: 0.2, MaxDelay: c.cfg.Poll},
			MinConnectTimeout: c.cfg.Poll,
		}),
	}
	if t := c.cfg.Transport; t.Network == "tcp" {
		id, err := mtls.Load(mtls.Files(t.TLS), c.cfg.Alarm)
		if err != nil && running {
			// Go on without a connection, because the process runs, and has to be watched and
			// stopped in any case.
			c.cfg.Alarm(fmt.Errorf("cannot connect to the process; unless this is fixed, it will be stopped by signals: %w", err))
			id = mtls.Expect(mtls.Files(t.TLS), c.cfg.Alarm)
		} else if err != nil {
			return nil, fmt.Errorf("launcher: cannot connect to process %q: %w", c.cfg.Process, err)
		}
		// The certificate must be valid for the configured host, whichever port the process
		// reports.
		target, creds = "passthrough:///"+t.Address, id.Credentials()
		opts = append(opts, grpc.WithContextDialer(c.dial))
	} else if c.owner >= 0 {
		creds = peer.CredentialsOf(c.owner)
		opts = append(opts, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return c.dialUnix(ctx) }))
	}
	conn, err := grpc.NewClient(target, append(opts, grpc.WithTransportCredentials(creds))...)
	if err != nil {
		return nil, fmt.Errorf("launcher: cannot connect to process %q: %w", c.cfg.Process, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn = conn
	return conn, nil
}

// dial connects over TCP, for package grpc. It takes the port that the process has reported in the
// place of a configured 0. As long as there is none, dial fails, and package grpc tries again.
func (c *Connection) dial(ctx context.Context, address string) (net.Conn, error) {
	host, port, err := SplitAddress(address)
	if err != nil {
		return nil, err
	}
	if port == 0 {
		port = int(c.port.Load())
	}
	if port == 0 {
		return nil, errors.New("the process has not reported the port at which it serves the protocol")
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
}

func (c *Connection) dialUnix(ctx context.Context) (net.Conn, error) {
	if c.owner >= 0 {
		return peer.DialOwned(ctx, c.socket, c.owner)
	}
	var d net.Dialer
	return d.DialContext(ctx, "unix", c.socket)
}

// Port returns the port that the process has reported, 0 if there is none.
func (c *Connection) Port() int32 { return c.port.Load() }

// RestorePort sets the port of an adopted process: the one that the process has reported to an
// earlier launcher, or 0 for none.
func (c *Connection) RestorePort(port int32) { c.port.Store(port) }

// SetPort sets the port that the process has reported. It cannot change, so that no other program
// can take the place of the process later.
//
// A process that reports the same port again, for instance because it has got no answer, gets no
// error.
func (c *Connection) SetPort(port int32) error {
	if _, configured, err := SplitAddress(c.cfg.Transport.Address); c.cfg.Transport.Network != "tcp" || err != nil || configured != 0 {
		return fmt.Errorf("process %q must not report a port: only a process whose group has the transport tcp and an address with port 0 chooses its port", c.cfg.Process)
	}
	if port < 1 || port > 65535 {
		return fmt.Errorf("%d is not a port; it must be from 1 to 65535", port)
	}
	if !c.port.CompareAndSwap(0, port) && c.port.Load() != port {
		return fmt.Errorf("process %q has already reported port %d, and cannot change it", c.cfg.Process, c.port.Load())
	}
	return nil
}

// IsServed reports whether something listens on the unix socket of the process. It answers at once,
// also during the back-off of the connection. By it the launcher learns whether a process of a
// group with "protocol: auto" uses the lifecycle protocol, without a call that would wait until
// there is a connection. A process that serves over TCP has no such socket, and IsServed is false.
func (c *Connection) IsServed() bool {
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.Poll)
	defer cancel()
	conn, err := c.dialUnix(ctx)
	if err != nil {
		return false
	}
	conn.Close()
	c.Redial()
	return true
}

// UnavailableIfUnserved returns err, the error of a call. If the call has run out of time and
// nothing listens on the unix socket of the process, the error has the code Unavailable instead: on
// a busy machine, the time of the call can end before the connection is refused.
func (c *Connection) UnavailableIfUnserved(err error) error {
	if status.Code(err) == codes.DeadlineExceeded && !c.IsServed() {
		return status.Error(codes.Unavailable, "nothing listens on the socket")
	}
	return err
}

// Redial ends the back-off of the connection. It is called when the process has just sent
// something, and so can be reached again. Without Redial, package grpc would let every call fail
// until the back-off ends, with the error of the last attempt to connect.
func (c *Connection) Redial() {
	c.mu.Lock()
	defer c.mu.Unlock()
	// There is no back-off before a try has failed. ResetConnectBackoff must not be called then: it
	// reads a map without a lock, and grpc writes to that map when it prepares the first try.
	if c.conn != nil && c.conn.GetState() == connectivity.TransientFailure {
		c.conn.ResetConnectBackoff()
	}
}

// Close closes the connection, if it was opened.
func (c *Connection) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		c.conn.Close()
	}
}
