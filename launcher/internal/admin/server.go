// Package admin serves gRPC calls of operators, and notifications of processes, on the unix socket
// in the launcher's directory. Operators can also call it over TCP with mutual TLS.
package admin

import (
	"errors"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/mtls"
	"github.com/swansong-go/swansong/launcher/internal/peer"
	"github.com/swansong-go/swansong/launcher/internal/userdir"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Limits for a slow or malicious client.
const (
	MaxMessage         = 256 << 10 // length in bytes of the longest message that the launcher accepts
	handshakeTimeout   = 10 * time.Second
	maxConcurrentCalls = 64 // number of concurrent calls of one client
	maxHeaderBytes     = 16 << 10
	maxConnections     = 1000 // number of concurrent connections of processes of another user; further connections wait
)

// answerTimeout bounds the time that calls have to end when the server is stopped. The server is
// stopped when all groups have ended. So the result of every order is known then, and only the
// answer has to be sent.
const answerTimeout = 250 * time.Millisecond

// A Server serves on the listeners that were opened before Serve.
type Server struct {
	launcher Launcher
	all      []listening
	tcp      net.Listener // nil if the service does not listen over TCP
	unix     *net.UnixListener

	mu      sync.Mutex
	users   map[uint32]listening // the servers that receive notifications of processes of other users, by uid
	stopped bool
	serving sync.WaitGroup // the goroutines that serve sockets of other users
}

// listening is a gRPC server with its listener.
type listening struct {
	*grpc.Server
	ln net.Listener
}

// New returns a server that does not listen yet. It may be made before the launcher can answer: the
// launcher is first used by Serve and ServeUser.
func New(launcher Launcher) *Server { return &Server{launcher: launcher} }

// ListenUnix listens on a unix socket, for operators and processes. Only processes of the same user
// and of root can connect, so there are no limits as for TCP.
//
// If inherited is not nil, the server uses a duplicate of this socket instead of a new one: an
// upgrade has handed it over. It has been listening all the time, so connections that clients have
// made during the upgrade wait to be accepted. The caller has to close inherited.
func (s *Server) ListenUnix(path string, inherited *os.File) (err error) {
	var ln net.Listener
	if inherited != nil {
		ln, err = net.FileListener(inherited)
	} else {
		ln, err = peer.Listen(path)
	}
	if err != nil {
		return err
	}
	s.unix, _ = ln.(*net.UnixListener)
	server := grpc.NewServer(grpc.Creds(peer.Credentials()), grpc.MaxRecvMsgSize(MaxMessage))
	pb.RegisterLauncherNotificationInterfaceServer(server, &notifications{launcher: s.launcher})
	pb.RegisterLauncherAdminInterfaceServer(server, &service{launcher: s.launcher})
	s.all = append(s.all, listening{server, ln})
	return nil
}

// UnixFile returns a duplicate of the unix socket, for another program that goes on to serve on it.
// The caller closes it.
func (s *Server) UnixFile() (*os.File, error) { return s.unix.File() }

// ListenTCP listens on host:port, for operators with a certificate. It accepts no notifications of
// processes, because a TCP connection does not show which process it comes from.
func (s *Server) ListenTCP(address string, id *mtls.Identity) error {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := limitedServer(id.Credentials())
	pb.RegisterLauncherAdminInterfaceServer(server, &service{launcher: s.launcher})
	s.all, s.tcp = append(s.all, listening{server, ln}), ln
	return nil
}

// limitedServer returns a gRPC server with limits for clients that the launcher does not trust.
func limitedServer(creds credentials.TransportCredentials) *grpc.Server {
	return grpc.NewServer(grpc.Creds(creds), grpc.MaxRecvMsgSize(MaxMessage), grpc.ConnectionTimeout(handshakeTimeout),
		grpc.MaxConcurrentStreams(maxConcurrentCalls), grpc.MaxHeaderListSize(maxHeaderBytes))
}

// ServeUser listens on a unix socket for notifications of processes that run as another user, and
// serves until Stop or Close. Only processes of this user can connect, and they cannot make the
// calls of operators. The directory of the socket must belong to the launcher's user. ServeUser
// does nothing if the socket is served already.
func (s *Server) ServeUser(path string, as *proc.User) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.users[as.UID]; ok {
		return nil
	}
	if s.stopped {
		return errors.New("the launcher is stopping")
	}
	ln, err := peer.Listen(path)
	if err != nil {
		return err
	}
	if err := userdir.Give(path, as); err != nil {
		ln.Close()
		return err
	}
	uid := int(as.UID)
	server := limitedServer(peer.CredentialsOf(uid))
	pb.RegisterLauncherNotificationInterfaceServer(server, &notifications{launcher: s.launcher, only: &uid})
	if s.users == nil {
		s.users = map[uint32]listening{}
	}
	s.users[as.UID] = listening{server, ln}
	s.serving.Go(func() { server.Serve(limit(ln, maxConnections)) })
	return nil
}

// Addr returns the address at which the server listens over TCP, nil if it does not.
func (s *Server) Addr() net.Addr {
	if s.tcp == nil {
		return nil
	}
	return s.tcp.Addr()
}

// Serve serves until Stop is called. The sockets of other users are served by ServeUser.
func (s *Server) Serve() { s.each(func(l listening) { l.Serve(l.ln) }) }

// Stop returns when the calls that are under way have ended. It aborts those that take longer than
// answerTimeout, because a stream can last for ever.
func (s *Server) Stop() {
	stop := func(l listening) {
		t := time.AfterFunc(answerTimeout, l.Stop)
		defer t.Stop()
		l.GracefulStop()
	}
	var stopping sync.WaitGroup
	for _, l := range s.stopUsers() {
		stopping.Go(func() { stop(l) })
	}
	s.each(stop)
	stopping.Wait()
	s.serving.Wait()
}

// stopUsers makes ServeUser fail from now on. It returns the servers for other users, which the
// caller stops; a second call returns none.
func (s *Server) stopUsers() []listening {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	users := slices.Collect(maps.Values(s.users))
	s.users = nil
	return users
}

// Close closes the listeners of a server that may not have served, as when the start of a launcher
// fails. After Stop it has no effect. The file of the unix socket is removed with its listener,
// unless the listener was inherited.
func (s *Server) Close() {
	for _, l := range s.all {
		l.ln.Close()
	}
	for _, l := range s.stopUsers() {
		l.Stop()
	}
	s.serving.Wait()
}

// each calls f for all listeners concurrently, and returns when all calls of f have returned. Serve
// and Stop both use this method. The calls of f for Serve return only when Stop is called, so
// neither Serve nor Stop may hold a lock. They need none, because the list of listeners does not
// change after the first call of Serve.
func (s *Server) each(f func(listening)) {
	var calls sync.WaitGroup
	for _, l := range s.all {
		calls.Go(func() { f(l) })
	}
	calls.Wait()
}
