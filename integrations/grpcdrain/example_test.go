package grpcdrain_test

import (
	"context"
	"fmt"
	"net"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/integrations/grpcdrain"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

func Example() {
	app := ctxshutdown.New(context.Background()) // or the context that graceful.Run gives
	defer app.Shutdown()

	rpc, cancel := ctxshutdown.WithCancel(app, ctxshutdown.WithName("grpc"))
	defer cancel()
	srv := grpc.NewServer(
		grpc.ChainUnaryInterceptor(grpcdrain.UnaryServerInterceptor(rpc)),
		grpc.ChainStreamInterceptor(grpcdrain.StreamServerInterceptor(rpc)))
	h := health.NewServer()
	healthpb.RegisterHealthServer(srv, h)

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	served := make(chan error, 1)
	go func() { served <- grpcdrain.Serve(rpc, srv, ln, grpcdrain.Health(h)) }()

	// A client.
	cc, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cc.Close()
	resp, err := healthpb.NewHealthClient(cc).Check(context.Background(), &healthpb.HealthCheckRequest{})
	fmt.Println(resp.GetStatus(), err)

	app.Shutdown()
	fmt.Println("drained:", <-served)
	// Output:
	// SERVING <nil>
	// drained: <nil>
}

// A long stream ends when its scope is told to stop, in the middle of nothing.
func ExampleMessages() {
	type summary struct{ messages int }
	upload := func(stream interface { // such as pb.Service_UploadServer
		Context() context.Context
		Recv() (string, error)
		SendAndClose(summary) error
	}) error {
		n := 0
		for _, err := range grpcdrain.Messages(stream) {
			if err != nil {
				return err
			}
			n++
		}
		return stream.SendAndClose(summary{n}) // what has come so far; the client goes on elsewhere
	}
	_ = upload
}
