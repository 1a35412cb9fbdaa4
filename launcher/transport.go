package launcher

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"

	"github.com/swansong-go/swansong/launcher/client"
	"github.com/swansong-go/swansong/launcher/internal/mtls"
	"github.com/swansong-go/swansong/launcher/internal/peer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// A TransportConfig says where the launcher and a process speak. What the process pushes goes to the launcher's unix socket
// in any case: only there does the kernel say which process it comes from.
type TransportConfig struct {
	Network string // "unix", the default: a socket of its own in Dir for each process. Or "tcp", with mutual TLS

	// Address is the host and port that a process listens on, for tcp. Port 0, which has to be there where there can be
	// more than one process, is any; the process says which. The host is one that the certificate is for.
	Address string

	// TLS is used by both ends, for tcp; the process is told the names of the files, and reads them itself. Whoever else has a
	// certificate of that authority can stop the process, so have one for this purpose.
	TLS TLS
}

// TLS names PEM files for mutual TLS: the certificate to show, with those between it and its authority; its key, which others
// may not be able to read; and the authorities whose certificates the other end may show. TLS is 1.3. Files that are replaced
// count from the next connection on; while they do not fit together, those before them do.
type TLS struct{ Cert, Key, CA string }

func (g GroupConfig) validateTransport(bad func(field, rule string, args ...any)) {
	t := g.Transport
	switch t.Network {
	case "unix":
		if t.Address != "" || t.TLS != (TLS{}) {
			bad("Transport", "an address and TLS are for tcp; set Network, or leave them out")
		}
		return
	case "tcp":
	default:
		bad("Transport.Network", "%q is none of [unix tcp]", t.Network)
		return
	}
	if g.Protocol == Signals {
		bad("Transport.Network", "tcp is of no use without the protocol")
	}
	if err := mtls.Files(t.TLS).Check(); err != nil {
		bad("Transport", "tcp: %v; or use unix", err)
	}
	host, port, err := splitAddress(t.Address)
	switch ip := net.ParseIP(host); {
	case err != nil:
		bad("Transport.Address", "%v", err)
	case host == "" || ip != nil && ip.IsUnspecified():
		bad("Transport.Address", "%q is every address of this machine; name one, such as 127.0.0.1:0", t.Address)
	case port != 0 && g.Desired+*g.MaxSurge > 1:
		bad("Transport.Address", "%q is one port, and there can be %d processes; use port 0", t.Address, g.Desired+*g.MaxSurge)
	}
}

func splitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not host:port", address)
	}
	port, err = strconv.Atoi(text)
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("%q: the port has to be 0 to 65535", address)
	}
	return host, port, nil
}

// lifecycleEnv tells the process where both listen. Of files it gets the names, and never what is in them.
func (p *process) lifecycleEnv() []string {
	t, address := p.cfg.Transport, p.lifecycleSocket()
	var env []string
	if t.Network == "tcp" {
		address = client.TCP + t.Address
		for _, v := range [][2]string{{client.EnvCert, t.TLS.Cert}, {client.EnvKey, t.TLS.Key}, {client.EnvCA, t.TLS.CA}} {
			name := v[1]
			if abs, err := filepath.Abs(name); err == nil { // the process may have another working directory
				name = abs
			}
			env = append(env, v[0]+"="+name)
		}
	}
	return append(env, client.EnvAddress+"="+address, client.EnvLauncher+"="+p.manager.socket())
}

// connect returns a connection to the process. Nobody has to be there yet.
func (p *process) connect() (*grpc.ClientConn, error) {
	target, creds := "unix:"+p.lifecycleSocket(), peer.Credentials()
	opts := []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		// A process that was not there a moment ago may be now: no waiting for longer than until the next look.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: p.cfg.Shutdown.Poll / 10, Multiplier: 1.6, Jitter: 0.2, MaxDelay: p.cfg.Shutdown.Poll},
			MinConnectTimeout: p.cfg.Shutdown.Poll,
		}),
	}
	if t := p.cfg.Transport; t.Network == "tcp" {
		alarm := func(err error) { p.tell(Event{Kind: Alarm, Message: err.Error()}) }
		id, err := mtls.Load(mtls.Files(t.TLS), alarm)
		if err != nil && p.found != nil {
			// It runs, and is to be watched and stopped whether it can be spoken with or not.
			alarm(fmt.Errorf("it cannot be spoken with, and unless that is mended first, is stopped by signals: %w", err))
			id = mtls.Expect(mtls.Files(t.TLS), alarm)
		} else if err != nil {
			return nil, fmt.Errorf("launcher: process %q: %w", p.id, err)
		}
		// The name that the certificate has to be for is the configured host, whatever the port turns out to be.
		target, creds = "passthrough:///"+t.Address, id.Credentials()
		opts = append(opts, grpc.WithContextDialer(p.dial))
	}
	conn, err := grpc.NewClient(target, append(opts, grpc.WithTransportCredentials(creds))...)
	if err != nil {
		return nil, fmt.Errorf("launcher: process %q: %w", p.id, err)
	}
	return conn, nil
}

func (p *process) dial(ctx context.Context, address string) (net.Conn, error) {
	host, port, err := splitAddress(address)
	if err != nil {
		return nil, err
	}
	if port == 0 {
		port = int(p.port.Load())
	}
	if port == 0 {
		return nil, errors.New("the process has not said at which port it serves the protocol")
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
}

// servesAt notes the port that the process has got. The first one counts: nobody can have the launcher talk to somebody else
// later.
func (p *process) servesAt(ctx context.Context, port int32) error {
	if _, configured, err := splitAddress(p.cfg.Transport.Address); p.cfg.Transport.Network != "tcp" || err != nil || configured != 0 {
		return fmt.Errorf("process %q was not told to choose a port", p.id)
	}
	if port < 1 || port > 65535 {
		return fmt.Errorf("%d is no port", port)
	}
	if !p.port.CompareAndSwap(0, port) && p.port.Load() != port {
		return fmt.Errorf("process %q serves at port %d, by its own word", p.id, p.port.Load())
	}
	if p.cfg.OnLauncherDeath == Keep {
		// The process says it once. If the launcher dies before it is written down, the process has no answer, and says it anew.
		if err := p.manager.memory.written(ctx.Done()); err != nil {
			return fmt.Errorf("the next launcher would not know of port %d: %w", port, err)
		}
	}
	p.redial()
	return nil
}

// redial connects at once to who has just been heard of. It may have been tried in vain before, and until the next try every
// call would fail with what was said then.
func (p *process) redial() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn != nil {
		p.conn.ResetConnectBackoff()
	}
}
