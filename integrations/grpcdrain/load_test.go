package grpcdrain_test

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/integrations/grpcdrain"
	"github.com/swansong-go/swansong/internal/testkit"
	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/stats"
)

// A sentRecorder records which calls were written to a connection.
type sentRecorder struct{ stats.Handler }

type sentKey struct{}

func (sentRecorder) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (sentRecorder) HandleConn(context.Context, stats.ConnStats)                       {}
func (sentRecorder) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (sentRecorder) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.OutHeader); ok {
		ctx.Value(sentKey{}).(*atomic.Bool).Store(true)
	}
}

// The server is stopped under load twenty times. Each call that was sent must be answered. A call
// that could not be sent is refused, and its client ends.
func TestServe_LosesNoCallUnderLoad(t *testing.T) {
	const shutdowns, conns, each, before = 20, 4, 4, 300
	var answered, refused, handled atomic.Int64
	for range shutdowns {
		var begun atomic.Int64
		enough := make(chan struct{})
		arrived := func() {
			handled.Add(1)
			if begun.Add(1) == before {
				close(enough)
			}
		}
		r := serve(t, &service{
			unary: func(ctx context.Context, req *pb.SimpleRequest) (*pb.SimpleResponse, error) {
				arrived()
				return echo(ctx, req)
			},
			serverStream: func(_ *pb.StreamingOutputCallRequest, stream pb.TestService_StreamingOutputCallServer) error {
				arrived()
				for range 3 {
					if err := stream.Send(&pb.StreamingOutputCallResponse{}); err != nil {
						return err
					}
				}
				return nil
			},
			clientStream: func(stream pb.TestService_StreamingInputCallServer) error {
				arrived()
				n := int32(0)
				for {
					if _, err := stream.Recv(); err == io.EOF {
						return stream.SendAndClose(&pb.StreamingInputCallResponse{AggregatedPayloadSize: n})
					} else if err != nil {
						return err
					}
					n++
				}
			},
			bidi: func(stream pb.TestService_FullDuplexCallServer) error {
				arrived()
				for {
					if _, err := stream.Recv(); err == io.EOF {
						return nil
					} else if err != nil {
						return err
					}
					if err := stream.Send(&pb.StreamingOutputCallResponse{}); err != nil {
						return err
					}
				}
			},
		})
		var clients sync.WaitGroup
		for range conns {
			c := r.client(t, grpc.WithStatsHandler(sentRecorder{}), grpc.WithDisableRetry())
			for kind := range each {
				clients.Go(func() {
					for {
						var wasSent atomic.Bool
						err := callOnce(context.WithValue(limit(t), sentKey{}, &wasSent), c, kind)
						if err == nil {
							answered.Add(1)
							continue
						}
						if wasSent.Load() {
							t.Errorf("lost: a call of kind %d was sent and failed: %v", kind, err)
						}
						refused.Add(1)
						return
					}
				})
			}
		}
		mustGet(t, "load", enough)
		if err := r.scope.Shutdown().Wait(limit(t)); err != nil {
			t.Error(err)
		}
		testkit.Equal(t, "Serve", mustGet(t, "Serve returns", r.served), nil)
		clients.Wait()
	}
	t.Logf("%d calls answered, %d refused before they were sent, in %d shutdowns", answered.Load(), refused.Load(), shutdowns)
	testkit.Equal(t, "calls handled and answered", handled.Load(), answered.Load())
	testkit.Equal(t, "each client was refused once", refused.Load(), int64(shutdowns*conns*each))
}

func callOnce(ctx context.Context, c pb.TestServiceClient, kind int) error {
	const messages = 3
	switch kind {
	case 0:
		_, err := c.UnaryCall(ctx, &pb.SimpleRequest{})
		return err
	case 1:
		stream, err := c.StreamingOutputCall(ctx, &pb.StreamingOutputCallRequest{})
		for err == nil {
			_, err = stream.Recv()
		}
		return notEOF(err)
	case 2:
		stream, err := c.StreamingInputCall(ctx)
		if err != nil {
			return err
		}
		for range messages {
			if err := stream.Send(&pb.StreamingInputCallRequest{}); err != nil && err != io.EOF {
				return err
			}
		}
		_, err = stream.CloseAndRecv()
		return err
	default:
		stream, err := c.FullDuplexCall(ctx)
		for range messages {
			if err == nil {
				err = stream.Send(&pb.StreamingOutputCallRequest{})
			}
			if err == nil || err == io.EOF {
				_, err = stream.Recv()
			}
		}
		if err != nil {
			return err
		}
		if err := stream.CloseSend(); err != nil {
			return err
		}
		_, err = stream.Recv()
		return notEOF(err)
	}
}

func notEOF(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// BenchmarkCall measures how much the interceptor adds to a call.
func BenchmarkCall(b *testing.B) {
	bench := func(call func(ctx context.Context, req any) error) func(b *testing.B) {
		return func(b *testing.B) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			b.ReportAllocs()
			for b.Loop() {
				_ = call(ctx, nil)
			}
		}
	}
	handler := func(context.Context, any) (any, error) { return nil, nil }
	s := ctxshutdown.New(context.Background())
	defer s.Shutdown()
	intercept, info := grpcdrain.UnaryServerInterceptor(s), &grpc.UnaryServerInfo{FullMethod: "/test.Service/Method"}
	b.Run("bare", bench(func(ctx context.Context, req any) error {
		_, err := handler(ctx, req)
		return err
	}))
	b.Run("interceptor", bench(func(ctx context.Context, req any) error {
		_, err := intercept(ctx, req, info, handler)
		return err
	}))
}
