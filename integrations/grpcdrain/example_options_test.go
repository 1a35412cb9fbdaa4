package grpcdrain_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/integrations/grpcdrain"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// A checker is a health service that tells what it sees of its calls.
type checker struct {
	healthpb.UnimplementedHealthServer
	scope *ctxshutdown.Swansong
}

func (c checker) Check(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	c.scope.Shutdown() // the stop comes in the middle of a call
	fmt.Println("guards:", c.scope.GuardCount(), "context:", ctx.Err())
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
}

// Watch is a stream that looks at nothing but its context.
func (c checker) Watch(_ *healthpb.HealthCheckRequest, stream healthpb.Health_WatchServer) error {
	stream.Send(&healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING})
	<-stream.Context().Done()
	return status.Error(codes.Unavailable, "ask another one")
}

// serveAndCall serves c, has f call it, and prints how the drain was.
func serveAndCall(c checker, srv *grpc.Server, f func(healthpb.HealthClient), opts ...grpcdrain.Option) {
	healthpb.RegisterHealthServer(srv, c)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	served := make(chan error, 1)
	go func() { served <- grpcdrain.Serve(c.scope, srv, ln, opts...) }()
	cc, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cc.Close()
	f(healthpb.NewHealthClient(cc))
	c.scope.Shutdown()
	fmt.Println("drained:", <-served)
}

func check(client healthpb.HealthClient) {
	_, err := client.Check(context.Background(), &healthpb.HealthCheckRequest{})
	fmt.Println("answered:", err)
}

func ExampleServe() {
	s := ctxshutdown.New(context.Background())
	serveAndCall(checker{scope: s}, grpc.NewServer(), check)
	// Output:
	// guards: 1 context: <nil>
	// answered: <nil>
	// drained: <nil>
}

// Each call is a guard, which is named after its method in reports.
func ExampleUnaryServerInterceptor() {
	s := ctxshutdown.New(context.Background())
	srv := grpc.NewServer(grpc.ChainUnaryInterceptor(grpcdrain.UnaryServerInterceptor(s)))
	serveAndCall(checker{scope: s}, srv, check)
	// Output:
	// guards: 2 context: <nil>
	// answered: <nil>
	// drained: <nil>
}

// Streams hold a guard until their handler returns: see Messages and EndAtStop for how they learn that it is time.
func ExampleStreamServerInterceptor() {
	s := ctxshutdown.New(context.Background())
	srv := grpc.NewServer(grpc.ChainStreamInterceptor(grpcdrain.StreamServerInterceptor(s)))
	serveAndCall(checker{scope: s}, srv, func(client healthpb.HealthClient) { watch(s, client) })
	// Output:
	// SERVING
	// Unavailable ask another one
	// drained: <nil>
}

// A stream that looks at nothing but its context is told by that.
func ExampleEndAtStop() {
	s := ctxshutdown.New(context.Background())
	ends := grpcdrain.EndAtStop("/shop.Orders/Follow", "/grpc.health.v1.Health/Watch") // this one is always among them
	srv := grpc.NewServer(grpc.ChainStreamInterceptor(grpcdrain.StreamServerInterceptor(s, ends)))
	serveAndCall(checker{scope: s}, srv, func(client healthpb.HealthClient) { watch(s, client) })
	// Output:
	// SERVING
	// Unavailable ask another one
	// drained: <nil>
}

func watch(s *ctxshutdown.Swansong, client healthpb.HealthClient) {
	stream, err := client.Watch(context.Background(), &healthpb.HealthCheckRequest{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for {
		got, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			fmt.Println(status.Code(err), status.Convert(err).Message())
			return
		}
		fmt.Println(got.GetStatus())
		s.Shutdown()
	}
}

// Balancers are told first, before anything else is done about the stop.
func ExampleHealth() {
	s := ctxshutdown.New(context.Background())
	h := health.NewServer()
	serveAndCall(checker{scope: s}, grpc.NewServer(), func(healthpb.HealthClient) {}, grpcdrain.Health(h))
	resp, err := h.Check(context.Background(), &healthpb.HealthCheckRequest{})
	fmt.Println(resp.GetStatus(), err)
	// Output:
	// drained: <nil>
	// NOT_SERVING <nil>
}

// A server whose keepalive is quicker than the default says so twice.
func ExampleKeepaliveTimeout() {
	s := ctxshutdown.New(context.Background())
	const timeout = 5 * time.Second
	srv := grpc.NewServer(grpc.KeepaliveParams(keepalive.ServerParameters{Timeout: timeout}))
	serveAndCall(checker{scope: s}, srv, check, grpcdrain.KeepaliveTimeout(timeout))
	// Output:
	// guards: 1 context: <nil>
	// answered: <nil>
	// drained: <nil>
}

// Who was cut off is named by its method.
func ExampleCutError() {
	s := ctxshutdown.New(context.Background())
	srv := grpc.NewServer(
		grpc.ChainUnaryInterceptor(grpcdrain.UnaryServerInterceptor(s)),
		grpc.ChainStreamInterceptor(grpcdrain.StreamServerInterceptor(s)))
	asked, answer := make(chan struct{}), make(chan struct{})
	healthpb.RegisterHealthServer(srv, busy{asked: asked, answer: answer})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	served := make(chan error, 1)
	go func() { served <- grpcdrain.Serve(s, srv, ln) }()
	cc, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cc.Close()
	for range 2 {
		go healthpb.NewHealthClient(cc).Check(context.Background(), &healthpb.HealthCheckRequest{})
		<-asked
	}
	s.Force(errors.New("out of time")) // as the ladder does

	var cut *grpcdrain.CutError
	if errors.As(<-served, &cut) {
		for _, call := range cut.Calls {
			fmt.Println(call.Path, call.Count, cut.Cause)
		}
	}
	close(answer)
	s.Shutdown().Wait(context.Background())
	// Output:
	// grpc.health.v1.Health/Check 2 out of time
}

// A busy health service does not look at its context, and answers when it is told to.
type busy struct {
	healthpb.UnimplementedHealthServer
	asked, answer chan struct{}
}

func (b busy) Check(context.Context, *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	b.asked <- struct{}{}
	<-b.answer
	return &healthpb.HealthCheckResponse{}, nil
}
