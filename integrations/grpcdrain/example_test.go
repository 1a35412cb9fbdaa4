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
	app := ctxshutdown.New(context.Background()) // in main, use the scope of graceful.Run
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

// Messages ends when the scope is stopped, although the client has not ended its stream.
func ExampleMessages() {
	s := ctxshutdown.New(context.Background())
	defer s.Shutdown()
	type summary struct{ messages int }
	upload := func(stream interface { // the type that grpc generates, such as pb.Service_UploadServer
		Context() context.Context
		Recv() (string, error)
		SendAndClose(summary) error
	}) error {
		n := 0
		for _, err := range grpcdrain.Messages(stream) {
			if err != nil {
				return err
			}
			if n++; n == 2 {
				s.Shutdown() // the scope is stopped while the client pauses
			}
		}
		return stream.SendAndClose(summary{n}) // the summary counts the messages received so far
	}
	ctx, end := context.WithCancel(s.Work())
	defer end() // gRPC cancels this context after the handler has returned
	client := &uploader[summary]{ctx: ctx, pieces: make(chan string, 2)}
	client.pieces <- "one"
	client.pieces <- "two"
	fmt.Println(upload(client), client.answer)
	// Output:
	// <nil> {2}
}

// An uploader is a stream whose client never ends it.
type uploader[S any] struct {
	ctx    context.Context
	pieces chan string
	answer S
}

func (u *uploader[S]) Context() context.Context { return u.ctx }

func (u *uploader[S]) Recv() (string, error) {
	select {
	case piece := <-u.pieces:
		return piece, nil
	case <-u.ctx.Done():
		return "", u.ctx.Err()
	}
}

func (u *uploader[S]) SendAndClose(answer S) error { u.answer = answer; return nil }
