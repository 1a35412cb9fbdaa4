package launcher

import (
	"net"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/mtls"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc"
)

// An AdminConfig says where operators reach the launcher, besides the socket in its directory.
type AdminConfig struct {
	Address string // host:port to listen on, over TCP; empty: nowhere. Port 0 is any: see [Manager.AdminAddr]

	// TLS is needed with an address. Whoever has a certificate of that authority can stop what runs here.
	TLS TLS
}

func (c AdminConfig) validate() []error {
	if c.Address == "" {
		if c.TLS != (TLS{}) {
			return []error{&ConfigError{Field: "Admin.TLS", Rule: "is of no use without an address"}}
		}
		return nil
	}
	var all []error
	if _, _, err := splitAddress(c.Address); err != nil {
		all = append(all, &ConfigError{Field: "Admin.Address", Rule: err.Error()})
	}
	if err := mtls.Files(c.TLS).Check(); err != nil {
		all = append(all, &ConfigError{Field: "Admin", Rule: err.Error()})
	}
	return all
}

// A remote is the admin service over TCP. There are no notifications on it: nothing says which process they would come
// from. Of a nil one the methods do nothing.
type remote struct {
	ln     net.Listener
	server *grpc.Server
}

// What a client that is slow, or of ill will, can hold up.
const (
	handshakePatience = 10 * time.Second
	maxCalls          = 64 // of a client, at once
	maxHeaders        = 16 << 10
)

func (m *Manager) listenRemote() (*remote, error) {
	c := m.cfg.Admin
	if c.Address == "" {
		return nil, nil
	}
	id, err := mtls.Load(mtls.Files(c.TLS), func(err error) { m.publish(Event{Kind: Alarm, Message: "admin service: " + err.Error()}) })
	if err != nil {
		return nil, &ConfigError{Field: "Admin.TLS", Rule: err.Error()}
	}
	ln, err := net.Listen("tcp", c.Address)
	if err != nil {
		return nil, &ConfigError{Field: "Admin.Address", Rule: err.Error()}
	}
	r := &remote{ln: ln, server: grpc.NewServer(grpc.Creds(id.Credentials()), grpc.MaxRecvMsgSize(maxMessage),
		grpc.ConnectionTimeout(handshakePatience), grpc.MaxConcurrentStreams(maxCalls), grpc.MaxHeaderListSize(maxHeaders))}
	pb.RegisterLauncherAdminInterfaceServer(r.server, &admin{manager: m})
	return r, nil
}

func (r *remote) serve() {
	if r != nil {
		r.server.Serve(r.ln)
	}
}

func (r *remote) stop() {
	if r != nil {
		stop(r.server)
	}
}

func (r *remote) close() {
	if r != nil {
		r.ln.Close()
	}
}

// AdminAddr returns where the admin service listens over TCP, nil if it does not.
func (m *Manager) AdminAddr() net.Addr {
	if m.remote == nil {
		return nil
	}
	return m.remote.ln.Addr()
}
