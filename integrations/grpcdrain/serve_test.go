package grpcdrain_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/integrations/grpcdrain"
	"github.com/swansong-go/swansong/internal/testkit"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/testdata"
)

// A call that began before the stop is answered, and its context is not cancelled.
func TestServe_AnswersRunningCall(t *testing.T) {
	entered, goOn := make(chan struct{}), make(chan struct{})
	r := serve(t, &service{unary: func(ctx context.Context, req *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		close(entered)
		<-goOn
		return echo(ctx, req)
	}})
	got := make(chan error, 1)
	go func() {
		_, err := r.client(t).UnaryCall(limit(t), &pb.SimpleRequest{})
		got <- err
	}()
	mustGet(t, "the call", entered)
	done := r.scope.Shutdown()
	testkit.Equal(t, "report during the drain", r.scope.GuardReport().String(),
		"2 guards: grpc/connections ×1, grpc/grpc.testing.TestService/UnaryCall ×1")
	close(goOn)
	testkit.Equal(t, "the client got", mustGet(t, "answer", got), nil)
	testkit.Equal(t, "Serve", mustGet(t, "Serve returns", r.served), nil)
	mustGet(t, "completion", done.Done())
	_, err := r.client(t).UnaryCall(limit(t), &pb.SimpleRequest{})
	testkit.Equal(t, "a call after the drain", status.Code(err), codes.Unavailable)
}

// Long streams of each kind are informed that the scope was stopped. They send a last message and
// end.
func TestServe_LongStreamsSendLastMessageAtStop(t *testing.T) {
	begun := make(chan struct{}, 3)
	r := serve(t, &service{
		serverStream: func(_ *pb.StreamingOutputCallRequest, stream pb.TestService_StreamingOutputCallServer) error {
			begun <- struct{}{}
			scope, _ := ctxshutdown.FromContext(stream.Context())
			<-scope.Done()
			return stream.Send(&pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: []byte("bye")}})
		},
		clientStream: func(stream pb.TestService_StreamingInputCallServer) error {
			n := int32(0)
			for _, err := range grpcdrain.Messages(stream) {
				if err != nil {
					return err
				}
				if n++; n == 2 {
					begun <- struct{}{}
				}
			}
			return stream.SendAndClose(&pb.StreamingInputCallResponse{AggregatedPayloadSize: n})
		},
		bidi: func(stream pb.TestService_FullDuplexCallServer) error {
			begun <- struct{}{}
			for _, err := range grpcdrain.Messages(stream) {
				if err != nil {
					return err
				}
			}
			return stream.Send(&pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: []byte("bye")}})
		},
	})
	c, ctx := r.client(t), limit(t)
	out, err := c.StreamingOutputCall(ctx, &pb.StreamingOutputCallRequest{})
	testkit.Equal(t, "StreamingOutputCall", err, nil)
	in, err := c.StreamingInputCall(ctx)
	testkit.Equal(t, "StreamingInputCall", err, nil)
	for range 2 {
		testkit.Equal(t, "Send", in.Send(&pb.StreamingInputCallRequest{}), nil)
	}
	both, err := c.FullDuplexCall(ctx)
	testkit.Equal(t, "FullDuplexCall", err, nil)
	for range 3 {
		mustGet(t, "stream begins", begun)
	}
	r.scope.Shutdown()

	last := func(recv func() (*pb.StreamingOutputCallResponse, error)) {
		t.Helper()
		m, err := recv()
		testkit.Equal(t, "last message", string(m.GetPayload().GetBody()), "bye")
		testkit.Equal(t, "last message", err, nil)
		_, err = recv()
		testkit.ErrorIs(t, "the end", err, io.EOF)
	}
	last(out.Recv)
	last(both.Recv)
	var sum pb.StreamingInputCallResponse
	testkit.Equal(t, "answer", in.RecvMsg(&sum), nil)
	testkit.Equal(t, "messages received", sum.GetAggregatedPayloadSize(), int32(2))
	testkit.Equal(t, "Serve", mustGet(t, "Serve returns", r.served), nil)
}

func TestMessages_IteratorEndsAtStop(t *testing.T) {
	type result struct {
		n   int
		err error
	}
	results := make(chan result, 1)
	stopAt := 0
	got := make(chan struct{}, 10)
	r := serve(t, &service{bidi: func(stream pb.TestService_FullDuplexCallServer) error {
		var res result
		for _, err := range grpcdrain.Messages(stream) {
			if res.err = err; err != nil {
				break
			}
			got <- struct{}{}
			if res.n++; res.n == stopAt {
				break
			}
		}
		results <- res
		return nil
	}})
	c := r.client(t)
	call := func(ctx context.Context, messages int) pb.TestService_FullDuplexCallClient {
		stream, err := c.FullDuplexCall(ctx)
		testkit.Equal(t, "FullDuplexCall", err, nil)
		for range messages {
			testkit.Equal(t, "Send", stream.Send(&pb.StreamingOutputCallRequest{}), nil)
			if stopAt == 0 {
				mustGet(t, "message", got)
			}
		}
		return stream
	}
	call(limit(t), 3).CloseSend()
	testkit.Equal(t, "messages of a complete stream", mustGet(t, "end", results).n, 3)

	ctx, leave := context.WithCancel(limit(t))
	call(ctx, 1)
	leave()
	res := mustGet(t, "end", results)
	testkit.Equal(t, "messages before the client left", res.n, 1)
	testkit.Equal(t, "error of the loop", status.Code(res.err), codes.Canceled)

	stopAt = 1
	call(limit(t), 1)
	testkit.Equal(t, "messages before break", mustGet(t, "end", results).n, 1)

	r.scope.Shutdown()
	testkit.Equal(t, "Serve", mustGet(t, "Serve returns", r.served), nil)
}

// Force cuts off a stream that its client never ends, and the CutError lists it.
func TestServe_ForceCutsStreamOff(t *testing.T) {
	t.Cleanup(grpcdrain.SetAnswerLimit(4 * time.Second)) // on a busy machine, 100 ms can be too short for the handler of the call
	begun, left := make(chan struct{}, 2), make(chan error, 2)
	r := serve(t, &service{
		bidi: func(stream pb.TestService_FullDuplexCallServer) error {
			begun <- struct{}{}
			_, err := stream.Recv() // the handler ignores the stop
			left <- err
			return err
		},
		unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			begun <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		},
	})
	c := r.client(t)
	stream, err := c.FullDuplexCall(limit(t))
	testkit.Equal(t, "FullDuplexCall", err, nil)
	answer := make(chan error, 1)
	go func() {
		_, err := c.UnaryCall(limit(t), &pb.SimpleRequest{})
		answer <- err
	}()
	mustGet(t, "stream", begun)
	mustGet(t, "call", begun)

	done := r.scope.Shutdown()
	errCause := errors.New("out of time")
	r.scope.Force(errCause)

	// Force ends the contexts of the handlers. If a handler returns after that, it still has the
	// time to answer its client.
	testkit.Equal(t, "the client of the call got",
		status.Convert(mustGet(t, "answer", answer)).Message(), "the server is shutting down and has cut this call short: out of time")
	err = mustGet(t, "Serve returns", r.served)
	var cut *grpcdrain.CutError
	if !errors.As(err, &cut) || !errors.Is(err, errCause) {
		t.Fatalf("Serve returned %v", err)
	}
	testkit.Equal(t, "unfinished calls", cut.Calls, []ctxshutdown.GuardEntry{{Path: "grpc/grpc.testing.TestService/FullDuplexCall", Count: 1}})
	testkit.Equal(t, "the error", err.Error(), "grpcdrain: 1 call cut off (out of time): grpc/grpc.testing.TestService/FullDuplexCall ×1")
	_, err = stream.Recv()
	testkit.Equal(t, "the client of the stream got", status.Code(err), codes.Unavailable)
	mustGet(t, "the handler ends", left)
	mustGet(t, "completion", done.Done())
}

// Serve returns although a handler ignores its context, also if the client of the handler is gone.
// If the client is gone, GracefulStop waits for the handler while it holds the mutex that Stop
// needs.
func TestServe_ReturnsAtForceEvenIfHandlerIgnoresItsContext(t *testing.T) {
	for _, gone := range []bool{false, true} {
		t.Run(map[bool]string{false: "client waits", true: "client gone"}[gone], func(t *testing.T) {
			begun, leave := make(chan context.Context, 1), make(chan struct{})
			r := serve(t, &service{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
				begun <- ctx
				<-leave
				return &pb.SimpleResponse{}, nil
			}})
			cc := dial(t, r.addr)
			answer := make(chan error, 1)
			go func() {
				_, err := pb.NewTestServiceClient(cc).UnaryCall(limit(t), &pb.SimpleRequest{})
				answer <- err
			}()
			call := mustGet(t, "call", begun)
			done := r.scope.Shutdown()
			if gone {
				cc.Close()
				mustGet(t, "the end of the client", call.Done())
			}
			r.scope.Force(errors.New("out of time"))
			err := mustGet(t, "Serve returns", r.served)
			testkit.Equal(t, "Serve", err.Error(), "grpcdrain: 1 call cut off (out of time): grpc/grpc.testing.TestService/UnaryCall ×1")
			mustGet(t, "end of the call at the client", answer)
			close(leave)
			mustGet(t, "completion", done.Done())
		})
	}
}

// Serve does not wait for a connection that the server's credentials have taken over.
func TestServe_DoesNotWaitForConnectionThatCredentialsHijacked(t *testing.T) {
	s := ctxshutdown.New(t.Context(), ctxshutdown.WithName("grpc"))
	creds := dispatcher{insecure.NewCredentials(), make(chan net.Conn, 1)}
	begun, leave := make(chan context.Context, 1), make(chan struct{})
	srv := grpc.NewServer(append(interceptors(s), grpc.Creds(creds))...)
	pb.RegisterTestServiceServer(srv, &service{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		begun <- ctx
		<-leave
		return &pb.SimpleResponse{}, nil
	}})
	r := serveOn(t, s, srv)
	nc, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := nc.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	dispatched := mustGet(t, "dispatched connection", creds.conns)
	defer dispatched.Close()
	cc := dial(t, r.addr)
	go pb.NewTestServiceClient(cc).UnaryCall(limit(t), &pb.SimpleRequest{})
	call := mustGet(t, "call", begun)
	done := s.Shutdown()
	cc.Close() // the client closes the connection while its call runs, so Stop has to wait for the handler
	mustGet(t, "the end of the client", call.Done())
	s.Force(errors.New("out of time"))
	var cut *grpcdrain.CutError
	if err := mustGet(t, "Serve returns", r.served); !errors.As(err, &cut) {
		t.Errorf("Serve returned %v", err)
	}
	if _, err := nc.Write([]byte("x")); err != nil {
		t.Errorf("the dispatched connection was closed: %v", err)
	}
	close(leave)
	mustGet(t, "completion", done.Done())
}

// A dispatcher takes over connections that do not begin with an HTTP/2 preface.
type dispatcher struct {
	credentials.TransportCredentials
	conns chan net.Conn
}

func (d dispatcher) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	begin := make([]byte, 1)
	if _, err := c.Read(begin); err != nil {
		return nil, nil, err
	}
	if begin[0] == 'P' {
		return d.TransportCredentials.ServerHandshake(&replayConn{c, io.MultiReader(bytes.NewReader(begin), c)})
	}
	d.conns <- c
	return nil, nil, credentials.ErrConnDispatched
}

func (d dispatcher) Clone() credentials.TransportCredentials { return d }

// A replayConn is a connection whose first byte was already read, and is returned by Read again.
type replayConn struct {
	net.Conn
	all io.Reader
}

func (r *replayConn) Read(b []byte) (int, error) { return r.all.Read(b) }

func TestCutError_ListsCalls(t *testing.T) {
	e := &grpcdrain.CutError{Cause: ctxshutdown.ErrForced}
	testkit.Equal(t, "no calls", e.Error(), "grpcdrain: connections cut off before they were drained (ctxshutdown: forced)")
	for range 12 {
		e.Calls = append(e.Calls, ctxshutdown.GuardEntry{Count: 2})
	}
	e.Calls[0] = ctxshutdown.GuardEntry{Path: "a/b", Count: 1, Oldest: 1500 * time.Millisecond}
	testkit.Equal(t, "many", e.Error(), "grpcdrain: 23 calls cut off (ctxshutdown: forced): a/b ×1 for 1.5s, (unnamed) ×2, (unnamed) ×2, "+
		"(unnamed) ×2, (unnamed) ×2, (unnamed) ×2, (unnamed) ×2, (unnamed) ×2, (unnamed) ×2, (unnamed) ×2, …")
}

// An idle client gets a GOAWAY and does not delay the drain.
func TestServe_SendsGoAwayToIdleClient(t *testing.T) {
	r := serve(t, &service{unary: echo})
	cc := dial(t, r.addr)
	_, err := pb.NewTestServiceClient(cc).UnaryCall(limit(t), &pb.SimpleRequest{})
	testkit.Equal(t, "a call", err, nil)
	// The state becomes Ready after the first call.
	for state := cc.GetState(); state != connectivity.Ready; state = cc.GetState() {
		if !cc.WaitForStateChange(limit(t), state) {
			t.Fatalf("the client stays in state %v", state)
		}
	}
	r.scope.Shutdown()
	testkit.Equal(t, "Serve", mustGet(t, "Serve returns", r.served), nil)
	if !cc.WaitForStateChange(limit(t), connectivity.Ready) {
		t.Error("the client is still connected")
	}
}

// A client that does not complete its handshake would delay GracefulStop and Stop for two minutes.
func TestServe_DoesNotWaitForIncompleteHandshake(t *testing.T) {
	cert, err := credentials.NewServerTLSFromFile(testdata.Path("x509/server1_cert.pem"), testdata.Path("x509/server1_key.pem"))
	testkit.Equal(t, "certificate", err, nil)
	ca, err := credentials.NewClientTLSFromFile(testdata.Path("x509/server_ca_cert.pem"), "x.test.example.com")
	testkit.Equal(t, "certificate", err, nil)
	for _, c := range []struct {
		name, sends    string
		server, client credentials.TransportCredentials
	}{
		{"nothing", "", insecure.NewCredentials(), insecure.NewCredentials()},
		{"half a preface", "PRI * HTTP", insecure.NewCredentials(), insecure.NewCredentials()},
		{"half a TLS record", "\x16\x03\x01", cert, ca},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := ctxshutdown.New(t.Context())
			srv := grpc.NewServer(append(interceptors(s), grpc.Creds(c.server))...)
			pb.RegisterTestServiceServer(srv, &service{unary: echo})
			r := serveOn(t, s, srv)
			silent, err := net.Dial("tcp", r.addr)
			testkit.Equal(t, "Dial", err, nil)
			defer silent.Close()
			_, err = io.WriteString(silent, c.sends)
			testkit.Equal(t, "Write", err, nil)
			// The server accepts connections in order. So when a call on a later connection has
			// returned, the server has accepted the connection silent, too.
			_, err = r.client(t, grpc.WithTransportCredentials(c.client)).UnaryCall(limit(t), &pb.SimpleRequest{})
			testkit.Equal(t, "a call", err, nil)
			s.Shutdown()
			testkit.Equal(t, "Serve", mustGet(t, "Serve returns", r.served), nil)
		})
	}
}

func TestHealth_IsNotServingAfterStop(t *testing.T) {
	s := ctxshutdown.New(t.Context())
	h := health.NewServer()
	srv := grpc.NewServer(interceptors(s)...)
	healthpb.RegisterHealthServer(srv, h)
	entered, goOn := make(chan struct{}), make(chan struct{})
	pb.RegisterTestServiceServer(srv, &service{unary: func(ctx context.Context, req *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		close(entered)
		<-goOn
		// The health service can still be called, because the connection of a running call is open.
		resp, err := h.Check(ctx, &healthpb.HealthCheckRequest{})
		if err == nil {
			testkit.Equal(t, "health during the drain", resp.GetStatus(), healthpb.HealthCheckResponse_NOT_SERVING)
		}
		return &pb.SimpleResponse{}, err
	}})
	r := serveOn(t, s, srv, grpcdrain.Health(h), nil)
	cc := dial(t, r.addr)
	watch, err := healthpb.NewHealthClient(cc).Watch(limit(t), &healthpb.HealthCheckRequest{})
	testkit.Equal(t, "Watch", err, nil)
	m, err := watch.Recv()
	testkit.Equal(t, "error", err, nil)
	testkit.Equal(t, "health", m.GetStatus(), healthpb.HealthCheckResponse_SERVING)
	answered := make(chan error, 1)
	go func() {
		_, err := pb.NewTestServiceClient(cc).UnaryCall(limit(t), &pb.SimpleRequest{})
		answered <- err
	}()
	mustGet(t, "the call", entered)
	s.Shutdown()
	for err == nil { // NOT_SERVING may arrive before the end of the stream
		m, err = watch.Recv()
		if err == nil {
			testkit.Equal(t, "health", m.GetStatus(), healthpb.HealthCheckResponse_NOT_SERVING)
		}
	}
	testkit.Equal(t, "the watch ended", status.Code(err), codes.Unavailable)
	// The interceptor may end the watch before Serve changes the health. So wait until the listener
	// is closed: Serve changes the health before that.
	for dialer, ctx := new(net.Dialer), limit(t); ; {
		c, err := dialer.DialContext(ctx, "tcp", r.addr)
		if err != nil {
			testkit.Equal(t, "Serve has closed the listener", ctx.Err(), nil)
			break
		}
		c.Close()
	}
	close(goOn)
	testkit.Equal(t, "answer", mustGet(t, "answer", answered), nil)
	testkit.Equal(t, "Serve", mustGet(t, "Serve returns", r.served), nil)
}

// In a process, health is NOT_SERVING from the lame duck phase on, while calls are still served.
func TestHealth_IsNotServingFromLameDuckOn(t *testing.T) {
	h := health.NewServer()
	ctx, sigterm := context.WithCancel(t.Context())
	defer sigterm()
	begin, end := make(chan *running), make(chan error, 1)
	go func() {
		end <- graceful.Run(ctx, func(s *ctxshutdown.Swansong) error {
			srv := grpc.NewServer(interceptors(s)...)
			healthpb.RegisterHealthServer(srv, h)
			pb.RegisterTestServiceServer(srv, &service{unary: echo})
			r := serveOn(t, s, srv, grpcdrain.Health(h))
			begin <- r
			return <-r.served
		}, graceful.WithSignals(), graceful.WithLameDuck(time.Hour))
	}()
	r := <-begin
	cc := dial(t, r.addr)
	watch, err := healthpb.NewHealthClient(cc).Watch(limit(t), &healthpb.HealthCheckRequest{})
	testkit.Equal(t, "Watch", err, nil)
	for i, want := range []healthpb.HealthCheckResponse_ServingStatus{healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING} {
		if i == 1 {
			sigterm()
		}
		m, err := watch.Recv()
		testkit.Equal(t, "error", err, nil)
		testkit.Equal(t, "health", m.GetStatus(), want)
	}
	testkit.Equal(t, "the stop", r.scope.Err(), nil)
	_, err = r.client(t).UnaryCall(limit(t), &pb.SimpleRequest{}) // this call needs a new connection
	testkit.Equal(t, "a call in the lame duck", err, nil)
	r.scope.Shutdown()
	testkit.Equal(t, "Run", mustGet(t, "Run returns", end), nil)
}

func TestServe_DrainsServerWithoutInterceptors(t *testing.T) {
	s := ctxshutdown.New(t.Context())
	srv := grpc.NewServer()
	entered := make(chan struct{})
	pb.RegisterTestServiceServer(srv, &service{unary: func(ctx context.Context, req *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		close(entered)
		<-s.Done()
		return echo(ctx, req)
	}})
	r := serveOn(t, s, srv)
	got := make(chan error, 1)
	go func() {
		_, err := r.client(t).UnaryCall(limit(t), &pb.SimpleRequest{})
		got <- err
	}()
	mustGet(t, "the call", entered)
	s.Shutdown()
	testkit.Equal(t, "the client got", mustGet(t, "answer", got), nil)
	testkit.Equal(t, "Serve", mustGet(t, "Serve returns", r.served), nil)
}

func TestServe_RefusesStoppedScope(t *testing.T) {
	for name, stop := range map[string]func(*ctxshutdown.Swansong){
		"stopped": func(s *ctxshutdown.Swansong) { s.Shutdown() },
		"forced":  func(s *ctxshutdown.Swansong) { s.Force(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			s := ctxshutdown.New(t.Context())
			stop(s)
			srv := grpc.NewServer(interceptors(s)...)
			r := serveOn(t, s, srv)
			testkit.Equal(t, "Serve", mustGet(t, "Serve returns", r.served), nil)
			if c, err := net.Dial("tcp", r.addr); err == nil {
				c.Close()
				t.Error("the listener is open")
			}
			testkit.Equal(t, "guards", s.GuardCount(), 0)
		})
	}
}

func TestServe_ReturnsErrorIfProgramStopsGRPCServer(t *testing.T) {
	s := ctxshutdown.New(t.Context())
	srv := grpc.NewServer(interceptors(s)...)
	pb.RegisterTestServiceServer(srv, &service{unary: echo})
	r := serveOn(t, s, srv)
	_, err := r.client(t).UnaryCall(limit(t), &pb.SimpleRequest{})
	testkit.Equal(t, "a call", err, nil)
	srv.Stop()
	testkit.Equal(t, "Serve", mustGet(t, "Serve returns", r.served), nil)
	testkit.Equal(t, "guards", s.GuardCount(), 0)

	err = grpcdrain.Serve(s, srv, listen(t))
	if !errors.Is(err, grpc.ErrServerStopped) {
		t.Errorf("Serve of a stopped server returned %v", err)
	}
}

func listen(t *testing.T) net.Listener {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// If the listener fails, Serve returns at once, and the existing connections drain.
func TestServe_ReturnsWhenListenerFails(t *testing.T) {
	errFailed := errors.New("no more files")
	s := ctxshutdown.New(t.Context())
	entered, goOn := make(chan struct{}), make(chan struct{})
	srv := grpc.NewServer(interceptors(s)...)
	pb.RegisterTestServiceServer(srv, &service{unary: func(ctx context.Context, req *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		close(entered)
		<-goOn
		return echo(ctx, req)
	}})
	ln := &failing{Listener: listen(t), fail: make(chan struct{})}
	served := make(chan error, 1)
	go func() { served <- grpcdrain.Serve(s, srv, ln) }()
	r := &running{s, ln.Addr().String(), served}
	got := make(chan error, 1)
	go func() {
		_, err := r.client(t).UnaryCall(limit(t), &pb.SimpleRequest{})
		got <- err
	}()
	mustGet(t, "the call", entered)
	ln.err = errFailed
	close(ln.fail)
	ln.Close() // makes Accept return the error
	testkit.ErrorIs(t, "Serve", mustGet(t, "Serve returns", served), errFailed)
	close(goOn)
	testkit.Equal(t, "the client got", mustGet(t, "answer", got), nil)
	if err := s.Shutdown().Wait(limit(t)); err != nil {
		t.Error(err)
	}
}

// If the listener fails at the time of the stop, Serve returns when the server has drained.
func TestServe_DrainsWhenListenerFailsAtStop(t *testing.T) {
	for range 200 {
		s := ctxshutdown.New(t.Context())
		ln := &failing{Listener: stopping{listen(t), s}, fail: make(chan struct{}), err: errors.New("no more files")}
		close(ln.fail)
		testkit.Equal(t, "Serve", grpcdrain.Serve(s, grpc.NewServer(), ln), nil)
		testkit.Equal(t, "guards", s.GuardCount(), 0)
		if t.Failed() {
			return
		}
	}
}

// A stopping is a listener that stops a scope when Accept is called for the first time.
type stopping struct {
	net.Listener
	s *ctxshutdown.Swansong
}

func (l stopping) Accept() (net.Conn, error) {
	l.s.Shutdown()
	return nil, net.ErrClosed
}

type failing struct {
	net.Listener
	fail chan struct{}
	err  error
}

func (f *failing) Accept() (net.Conn, error) {
	c, err := f.Listener.Accept()
	select {
	case <-f.fail:
		err = f.err
	default:
	}
	return c, err
}

func TestServe_RejectsInvalidArguments(t *testing.T) {
	s, srv, ln := ctxshutdown.New(t.Context()), grpc.NewServer(), listen(t)
	for want, err := range map[string]error{
		"grpcdrain: Serve: nil scope; create one with ctxshutdown.New":       grpcdrain.Serve(nil, srv, ln),
		"grpcdrain: Serve: nil *grpc.Server; create one with grpc.NewServer": grpcdrain.Serve(s, nil, ln),
		"grpcdrain: Serve: nil net.Listener; open one with net.Listen":       grpcdrain.Serve(s, srv, nil),
		"grpcdrain: Health: nil *health.Server":                              grpcdrain.Serve(s, srv, ln, grpcdrain.Health(nil)),
		"grpcdrain: KeepaliveTimeout(-1s): must be positive":                 grpcdrain.Serve(s, srv, ln, grpcdrain.KeepaliveTimeout(-time.Second)),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	testkit.Equal(t, "guards", s.GuardCount(), 0)
}
