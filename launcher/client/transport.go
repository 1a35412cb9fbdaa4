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

// serve serves the protocol. If the process chooses its port, serve reports it to the launcher.
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
	if err := l.reportPort(ln.Addr().(*net.TCPAddr).Port); err != nil {
		l.server.Stop()
		<-l.served
		return err
	}
	return nil
}

// serveHealth serves grpc.health.v1 on the port of EnvHealth. Probes do not support TLS, so every
// program can connect. Therefore the port serves nothing else, and requests must not be much larger
// than a service name.
func (l *Lifecycle) serveHealth() error {
	if l.config.healthPort == "" {
		close(l.healthServed)
		return nil
	}
	if n, err := strconv.Atoi(l.config.healthPort); err != nil || n < 1 || n > 65535 {
		return errors.New("must be a number from 1 to 65535")
	}
	ln, err := net.Listen("tcp", net.JoinHostPort("", l.config.healthPort))
	if err != nil {
		return err
	}
	l.healthServer = grpc.NewServer(grpc.MaxRecvMsgSize(maxProbe), grpc.MaxConcurrentStreams(maxProbes))
	l.RegisterHealth(l.healthServer)
	go func() { defer close(l.healthServed); l.healthServer.Serve(ln) }()
	return nil
}

// listen listens on the configured address. The result chosen reports whether the process has
// chosen the port, because none was configured.
func (l *Lifecycle) listen() (ln net.Listener, creds credentials.TransportCredentials, chosen bool, err error) {
	address, tcp := strings.CutPrefix(l.config.address, TCP)
	if !tcp {
		ln, err = peer.Listen(address)
		return ln, peer.Credentials(), false, err
	}
	id, err := mtls.Load(l.config.tls, func(err error) { l.config.logger.Error("TLS", "err", err) })
	if err != nil {
		return nil, nil, false, fmt.Errorf("TCP needs TLS; set %s, %s and %s, or use WithTLS: %w", EnvCert, EnvKey, EnvCA, err)
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

// reportPort reports the port to the launcher, over the launcher's unix socket, where the launcher
// can identify the process. It retries for two reasons: the process can call before the launcher
// has recorded its pid, and a launcher that dies before it has answered can be replaced by another
// one.
func (l *Lifecycle) reportPort(port int) error {
	if l.launcher == nil {
		return nil // there is no launcher to notify; the program can read the port from Addr
	}
	ctx, cancel := context.WithTimeout(context.Background(), portTimeout)
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
			return fmt.Errorf("cannot report port %d to the launcher, which needs it to reach this process: %w", port, err)
		}
	}
}

// Addr returns the address at which the process serves the protocol, or nil if it does not serve
// it.
func (l *Lifecycle) Addr() net.Addr { return l.addr }
