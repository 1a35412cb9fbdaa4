package grpcdrain_test

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/integrations/grpcdrain"
	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"
)

// accepted hands on what it accepts, for a look at it.
type accepted struct {
	net.Listener
	conns chan net.Conn
}

func (a *accepted) Accept() (net.Conn, error) {
	c, err := a.Listener.Accept()
	if err == nil {
		a.conns <- c
	}
	return c, err
}

// TestUserTimeoutIsKept: grpc sets it on connections that nobody has wrapped, and Serve wraps them.
func TestUserTimeoutIsKept(t *testing.T) {
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
		ln := &accepted{listen(t), make(chan net.Conn, 10)}
		served := make(chan error, 1)
		go func() { served <- grpcdrain.Serve(s, srv, ln, c.opt) }()
		r := &running{s, ln.Addr().String(), served}
		_, err := r.client(t).UnaryCall(limit(t), &pb.SimpleRequest{})
		equal(t, "a call", err, nil)
		raw, err := mustGet(t, "connection", ln.conns).(*net.TCPConn).SyscallConn()
		equal(t, "SyscallConn", err, nil)
		var ms int
		err = raw.Control(func(fd uintptr) { ms, _ = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, 0x12) })
		equal(t, "Control", err, nil)
		equal(t, "TCP_USER_TIMEOUT", time.Duration(ms)*time.Millisecond, c.want)
		s.Shutdown()
		equal(t, "Serve", mustGet(t, "Serve returns", served), nil)
	}
}
