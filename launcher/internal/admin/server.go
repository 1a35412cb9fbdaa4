// Package admin serves gRPC calls of operators, and notifications of processes, on the unix socket
// in the launcher's directory. Operators can also call it over TCP with mutual TLS.
package admin

import (
	"net"
	"os"
	"sync"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/mtls"
	"github.com/swansong-go/swansong/launcher/internal/peer"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc"
)

// Limits for a slow or malicious client.
const (
	MaxMessage         = 256 << 10 // length in bytes of the longest message that the launcher accepts
	handshakeTimeout   = 10 * time.Second
	maxConcurrentCalls = 64 // number of concurrent calls of one client
	maxHeaderBytes     = 16 << 10
)

// answerTimeout bounds the calls that are under way when the server is stopped.
const answerTimeout = 250 * time.Millisecond

// A Server serves on the listeners that were opened before Serve.
type Server struct {
	launcher Launcher
	all      []listening
	tcp      net.Listener // nil if the service does not listen over TCP
	unix     *net.UnixListener
}

// listening is a gRPC server with its listener.
type listening struct {
	*grpc.Server
	ln net.Listener
}

// New returns a server that does not listen yet.
func New(launcher Launcher) *Server { return &Server{launcher: launcher} }

// ListenUnix listens on a unix socket, for operators and processes. Only processes of the same user
// and of root can connect. If inherited is not nil, it is the socket, which listens already.
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
func (s *Server) UnixFile() (*os.File, error) { return s.unix.File() }

// ListenTCP listens on host:port, for operators with a certificate. It accepts no notifications of
// processes, because a TCP connection does not show which process it comes from.
func (s *Server) ListenTCP(address string, id *mtls.Identity) error {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.Creds(id.Credentials()), grpc.MaxRecvMsgSize(MaxMessage),
		grpc.ConnectionTimeout(handshakeTimeout), grpc.MaxConcurrentStreams(maxConcurrentCalls), grpc.MaxHeaderListSize(maxHeaderBytes))
	pb.RegisterLauncherAdminInterfaceServer(server, &service{launcher: s.launcher})
	s.all, s.tcp = append(s.all, listening{server, ln}), ln
	return nil
}

// Addr returns the address at which the server listens over TCP, nil if it does not.
func (s *Server) Addr() net.Addr {
	if s.tcp == nil {
		return nil
	}
	return s.tcp.Addr()
}

// Serve serves until Stop is called.
func (s *Server) Serve() { s.each(func(l listening) { l.Serve(l.ln) }) }

// Stop returns when the calls that are under way have ended. It aborts those that take longer than
// answerTimeout, because a stream can last for ever.
func (s *Server) Stop() {
	s.each(func(l listening) {
		t := time.AfterFunc(answerTimeout, l.Stop)
		defer t.Stop()
		l.GracefulStop()
	})
}

// Close closes the listeners of a server that may not have served.
func (s *Server) Close() {
	for _, l := range s.all {
		l.ln.Close()
	}
}

// each calls f for all listeners concurrently and waits.
func (s *Server) each(f func(listening)) {
	var calls sync.WaitGroup
	for _, l := range s.all {
		calls.Go(func() { f(l) })
	}
	calls.Wait()
}
