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

// A checker is a health service that prints the state during its calls.
type checker struct {
	healthpb.UnimplementedHealthServer
	scope *ctxshutdown.Swansong
}

func (c checker) Check(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	c.scope.Shutdown() // the scope is stopped during this call
	fmt.Println("guards:", c.scope.GuardCount(), "context:", ctx.Err())
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
}

// Watch is a streaming handler that only watches its context.
func (c checker) Watch(_ *healthpb.HealthCheckRequest, stream healthpb.Health_WatchServer) error {
	stream.Send(&healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING})
	<-stream.Context().Done()
	return status.Error(codes.Unavailable, "ask another one")
}

// serveAndCall serves c, calls f with a client, stops the server, and prints the result of Serve.
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

// Each call holds a guard, which has the name of the method in reports.
func ExampleUnaryServerInterceptor() {
	s := ctxshutdown.New(context.Background())
	srv := grpc.NewServer(grpc.ChainUnaryInterceptor(grpcdrain.UnaryServerInterceptor(s)))
	serveAndCall(checker{scope: s}, srv, check)
	// Output:
	// guards: 2 context: <nil>
	// answered: <nil>
	// drained: <nil>
}

// A stream holds a guard until its handler returns. With Messages or EndAtStop, the handler learns
// that the scope was stopped.
func ExampleStreamServerInterceptor() {
	s := ctxshutdown.New(context.Background())
	srv := grpc.NewServer(grpc.ChainStreamInterceptor(grpcdrain.StreamServerInterceptor(s)))
	serveAndCall(checker{scope: s}, srv, func(client healthpb.HealthClient) { watch(s, client) })
	// Output:
	// SERVING
	// Unavailable ask another one
	// drained: <nil>
}

// The stop cancels the context of a stream that only watches its context.
func ExampleEndAtStop() {
	s := ctxshutdown.New(context.Background())
	// The method Watch of the health service is always included.
	ends := grpcdrain.EndAtStop("/shop.Orders/Follow", "/grpc.health.v1.Health/Watch")
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

// Health changes to NOT_SERVING first, so that load balancers stop sending calls.
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

// A program that sets the keepalive Timeout of its grpc.Server must tell Serve the same Timeout.
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

// CutError lists the calls that were cut off, by method.
func ExampleCutError() {
	s := ctxshutdown.New(context.Background())
	srv := grpc.NewServer(
		grpc.ChainUnaryInterceptor(grpcdrain.UnaryServerInterceptor(s)),
		grpc.ChainStreamInterceptor(grpcdrain.StreamServerInterceptor(s)))
	entered, answer := make(chan struct{}), make(chan struct{})
	healthpb.RegisterHealthServer(srv, busy{entered: entered, answer: answer})
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
		<-entered
	}
	s.Force(errors.New("out of time")) // in a program, graceful.Run calls Force when the time is over

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

// A busy is a health service that ignores its context, and answers when the channel answer is
// closed.
type busy struct {
	healthpb.UnimplementedHealthServer
	entered, answer chan struct{}
}

func (b busy) Check(context.Context, *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	b.entered <- struct{}{}
	<-b.answer
	return &healthpb.HealthCheckResponse{}, nil
}
