package grpcdrain_test

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/integrations/grpcdrain"
	"github.com/swansong-go/swansong/internal/testkit"
	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"
)

// A recorder is a listener that also sends its connections to the test.
type recorder struct {
	net.Listener
	conns chan net.Conn
}

func (r *recorder) Accept() (net.Conn, error) {
	c, err := r.Listener.Accept()
	if err == nil {
		r.conns <- c
	}
	return c, err
}

// Serve sets TCP_USER_TIMEOUT, which grpc sets only on connections that are not wrapped.
func TestServe_SetsTCPUserTimeoutOfConnections(t *testing.T) {
	for _, c := range []struct {
		opt  grpcdrain.Option
		want time.Duration
	}{
		{nil, 20 * time.Second},
		{grpcdrain.KeepaliveTimeout(time.Minute), time.Minute},
	} {
		s := ctxshutdown.New(t.Context())
		srv := grpc.NewServer()
		pb.RegisterTestServiceServer(srv, &service{unary: echo})
		ln := &recorder{listen(t), make(chan net.Conn, 10)}
		served := make(chan error, 1)
		go func() { served <- grpcdrain.Serve(s, srv, ln, c.opt) }()
		r := &running{s, ln.Addr().String(), served}
		_, err := r.client(t).UnaryCall(limit(t), &pb.SimpleRequest{})
		testkit.Equal(t, "a call", err, nil)
		raw, err := mustGet(t, "connection", ln.conns).(*net.TCPConn).SyscallConn()
		testkit.Equal(t, "SyscallConn", err, nil)
		var ms int
		err = raw.Control(func(fd uintptr) { ms, _ = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, 0x12) })
		testkit.Equal(t, "Control", err, nil)
		testkit.Equal(t, "TCP_USER_TIMEOUT", time.Duration(ms)*time.Millisecond, c.want)
		s.Shutdown()
		testkit.Equal(t, "Serve", mustGet(t, "Serve returns", served), nil)
	}
}
