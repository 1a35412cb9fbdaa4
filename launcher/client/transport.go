package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/launcher/internal/mtls"
	"github.com/swansong-go/swansong/launcher/internal/peer"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// serve serves the protocol, and tells the launcher the port where that could not know it.
func (l *Lifecycle) serve() error {
	ln, creds, chosen, err := l.listen()
	if err != nil {
		return err
	}
	l.addr = ln.Addr()
	l.server = grpc.NewServer(grpc.Creds(creds), grpc.MaxRecvMsgSize(maxMessage))
	Register(l.server, l.Shutdown, l.Readiness)
	l.RegisterHealth(l.server)
	go func() { defer close(l.served); l.server.Serve(ln) }()
	if !chosen {
		return nil
	}
	if err := l.tellPort(ln.Addr().(*net.TCPAddr).Port); err != nil {
		l.server.Stop()
		<-l.served
		return err
	}
	return nil
}

// serveProbes serves grpc.health.v1 to those who probe from elsewhere, without TLS, which they do not speak. So there is nothing
// else, and a request may be as long as the name of a service is.
func (l *Lifecycle) serveProbes() error {
	if l.config.probed == "" {
		close(l.probed)
		return nil
	}
	if n, err := strconv.Atoi(l.config.probed); err != nil || n < 1 || n > 65535 {
		return errors.New("must be 1 to 65535")
	}
	ln, err := net.Listen("tcp", net.JoinHostPort("", l.config.probed))
	if err != nil {
		return err
	}
	l.probes = grpc.NewServer(grpc.MaxRecvMsgSize(maxProbe), grpc.MaxConcurrentStreams(maxProbes))
	l.RegisterHealth(l.probes)
	go func() { defer close(l.probed); l.probes.Serve(ln) }()
	return nil
}

// listen listens where the configuration says. With chosen true the port is of our own choice.
func (l *Lifecycle) listen() (ln net.Listener, creds credentials.TransportCredentials, chosen bool, err error) {
	address, tcp := strings.CutPrefix(l.config.address, TCP)
	if !tcp {
		ln, err = peer.Listen(address)
		return ln, peer.Credentials(), false, err
	}
	id, err := mtls.Load(l.config.tls, func(err error) { l.config.logger.Error("TLS", "err", err) })
	if err != nil {
		return nil, nil, false, fmt.Errorf("TCP needs TLS, by %s, %s and %s or WithTLS: %w", EnvCert, EnvKey, EnvCA, err)
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, nil, false, err
	}
	if ln, err = net.Listen("tcp", address); err != nil {
		return nil, nil, false, err
	}
	n, err := strconv.Atoi(port)
	return ln, id.Credentials(), err == nil && n == 0, nil
}

// tellPort tells the launcher which port it is, over its unix socket: there it knows who speaks. It does so until it is
// believed, since a process can be quicker than the launcher is in noting that it has started one, and a launcher that dies
// before it has answered may be followed by another one.
func (l *Lifecycle) tellPort(port int) error {
	if l.launcher == nil {
		return nil // somebody has asked for this who will look at Addr
	}
	ctx, cancel := context.WithTimeout(context.Background(), handshake)
	defer cancel()
	in := &pb.ServingNotification{ProcessId: l.config.id, Port: int32(port)}
	to := pb.NewLauncherNotificationInterfaceClient(l.launcher)
	for {
		_, err := to.NotifyServing(ctx, in, grpc.WaitForReady(true))
		if err == nil {
			return nil
		}
		again := status.Code(err) == codes.PermissionDenied || status.Code(err) == codes.Unavailable
		if !again || !ctxshutdown.Sleep(ctx, 20*time.Millisecond) {
			return fmt.Errorf("the launcher was not told of port %d, and cannot reach this process without: %w", port, err)
		}
	}
}

// Addr returns where the protocol is served, nil if it is not.
func (l *Lifecycle) Addr() net.Addr { return l.addr }
