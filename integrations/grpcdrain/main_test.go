package grpcdrain_test

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/integrations/grpcdrain"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
)

func TestMain(m *testing.M) {
	os.Unsetenv("CTXSHUTDOWN_TRACE")
	goleak.VerifyTestMain(m)
}

// timeout is the time limit for everything that a test waits for.
const timeout = 30 * time.Second

func mustGet[T any](t *testing.T, what string, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(timeout):
		t.Fatalf("timeout: %s", what)
	}
	return v
}

// A service is a gRPC service whose handlers the test sets.
type service struct {
	pb.UnimplementedTestServiceServer
	unary        func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error)
	serverStream func(*pb.StreamingOutputCallRequest, pb.TestService_StreamingOutputCallServer) error
	clientStream func(pb.TestService_StreamingInputCallServer) error
	bidi         func(pb.TestService_FullDuplexCallServer) error
}

func (s *service) UnaryCall(ctx context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return s.unary(ctx, r)
}

func (s *service) StreamingOutputCall(r *pb.StreamingOutputCallRequest, stream pb.TestService_StreamingOutputCallServer) error {
	return s.serverStream(r, stream)
}

func (s *service) StreamingInputCall(stream pb.TestService_StreamingInputCallServer) error {
	return s.clientStream(stream)
}

func (s *service) FullDuplexCall(stream pb.TestService_FullDuplexCallServer) error {
	return s.bidi(stream)
}

// A running is a grpc.Server that is being served, with its scope.
type running struct {
	scope  *ctxshutdown.Swansong
	addr   string
	served chan error
}

func interceptors(s *ctxshutdown.Swansong, opts ...grpcdrain.InterceptorOption) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(grpcdrain.UnaryServerInterceptor(s, opts...)),
		grpc.ChainStreamInterceptor(grpcdrain.StreamServerInterceptor(s, opts...)),
	}
}

// serve starts to serve h with the interceptors. The test must receive the result of Serve from the
// channel served of the running.
func serve(t *testing.T, h *service, opts ...grpcdrain.Option) *running {
	t.Helper()
	s := ctxshutdown.New(t.Context(), ctxshutdown.WithName("grpc"))
	srv := grpc.NewServer(interceptors(s)...)
	pb.RegisterTestServiceServer(srv, h)
	return serveOn(t, s, srv, opts...)
}

func serveOn(t *testing.T, s *ctxshutdown.Swansong, srv *grpc.Server, opts ...grpcdrain.Option) *running {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &running{s, ln.Addr().String(), make(chan error, 1)}
	go func() { r.served <- grpcdrain.Serve(s, srv, ln, opts...) }()
	t.Cleanup(func() {
		s.Force(nil)
		srv.Stop()
	})
	return r
}

func dial(t testing.TB, addr string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:"+addr, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	return cc
}

func (r *running) client(t testing.TB, opts ...grpc.DialOption) pb.TestServiceClient {
	return pb.NewTestServiceClient(dial(t, r.addr, opts...))
}

// limit returns a context that ends after the timeout.
func limit(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	t.Cleanup(cancel)
	return ctx
}

func echo(_ context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return &pb.SimpleResponse{Payload: r.GetPayload()}, nil
}
