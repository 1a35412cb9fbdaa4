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

// A call that is under way is seen through: its context lives on, and its client gets the answer.
func TestCallIsSeenThrough(t *testing.T) {
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
	equal(t, "who holds it up", r.scope.GuardReport().String(),
		"2 guards: grpc/connections ×1, grpc/grpc.testing.TestService/UnaryCall ×1")
	close(goOn)
	equal(t, "the client got", mustGet(t, "answer", got), nil)
	equal(t, "Serve", mustGet(t, "Serve returns", r.served), nil)
	mustGet(t, "completion", done.Done())
	_, err := r.client(t).UnaryCall(limit(t), &pb.SimpleRequest{})
	equal(t, "a call after the drain", status.Code(err), codes.Unavailable)
}

// Long streams of each kind are told by the stop, and end in their own words.
func TestLongStreamsEndAtTheStop(t *testing.T) {
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
	equal(t, "StreamingOutputCall", err, nil)
	in, err := c.StreamingInputCall(ctx)
	equal(t, "StreamingInputCall", err, nil)
	for range 2 {
		equal(t, "Send", in.Send(&pb.StreamingInputCallRequest{}), nil)
	}
	both, err := c.FullDuplexCall(ctx)
	equal(t, "FullDuplexCall", err, nil)
	for range 3 {
		mustGet(t, "stream begins", begun)
	}
	r.scope.Shutdown()

	last := func(recv func() (*pb.StreamingOutputCallResponse, error)) {
		t.Helper()
		m, err := recv()
		equal(t, "last message", string(m.GetPayload().GetBody()), "bye")
		equal(t, "last message", err, nil)
		_, err = recv()
		equal(t, "the end", err, io.EOF)
	}
	last(out.Recv)
	last(both.Recv)
	var sum pb.StreamingInputCallResponse
	equal(t, "answer", in.RecvMsg(&sum), nil)
	equal(t, "messages that were received", sum.GetAggregatedPayloadSize(), int32(2))
	equal(t, "Serve", mustGet(t, "Serve returns", r.served), nil)
}

func TestMessages(t *testing.T) {
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
		equal(t, "FullDuplexCall", err, nil)
		for range messages {
			equal(t, "Send", stream.Send(&pb.StreamingOutputCallRequest{}), nil)
			if stopAt == 0 {
				mustGet(t, "message", got)
			}
		}
		return stream
	}
	call(limit(t), 3).CloseSend()
	equal(t, "all were sent", mustGet(t, "end", results).n, 3)

	ctx, leave := context.WithCancel(limit(t))
	call(ctx, 1)
	leave()
	res := mustGet(t, "end", results)
	equal(t, "messages before the client left", res.n, 1)
	equal(t, "its error", status.Code(res.err), codes.Canceled)

	stopAt = 1
	call(limit(t), 2)
	equal(t, "left by break", mustGet(t, "end", results).n, 1)

	r.scope.Shutdown()
	equal(t, "Serve", mustGet(t, "Serve returns", r.served), nil)
}

// A client that never ends its stream is cut at the hard rung, and named.
func TestEndlessStreamIsCutAndNamed(t *testing.T) {
	begun, left := make(chan struct{}, 2), make(chan error, 2)
	r := serve(t, &service{
		bidi: func(stream pb.TestService_FullDuplexCallServer) error {
			begun <- struct{}{}
			_, err := stream.Recv() // looks at nothing
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
	equal(t, "FullDuplexCall", err, nil)
	told := make(chan error, 1)
	go func() {
		_, err := c.UnaryCall(limit(t), &pb.SimpleRequest{})
		told <- err
	}()
	mustGet(t, "stream", begun)
	mustGet(t, "call", begun)

	done := r.scope.Shutdown()
	errCause := errors.New("out of time")
	r.scope.Force(errCause)

	// The one whose handler listens has the time to say why.
	equal(t, "the client of the call got",
		status.Convert(mustGet(t, "answer", told)).Message(), "the server shuts down and has cut this call short: out of time")
	err = mustGet(t, "Serve returns", r.served)
	var cut *grpcdrain.CutError
	if !errors.As(err, &cut) || !errors.Is(err, errCause) {
		t.Fatalf("Serve returned %v", err)
	}
	equal(t, "who was cut", cut.Calls, []ctxshutdown.GuardEntry{{Path: "grpc/grpc.testing.TestService/FullDuplexCall", Count: 1}})
	equal(t, "the error", err.Error(), "grpcdrain: 1 call cut off (out of time): grpc/grpc.testing.TestService/FullDuplexCall ×1")
	_, err = stream.Recv()
	equal(t, "the client of the stream got", status.Code(err), codes.Unavailable)
	mustGet(t, "the handler ends", left)
	mustGet(t, "completion", done.Done())
}

// A handler that looks at nothing does not keep Serve from saying so, not even where its client is gone: GracefulStop waits
// for it then with a mutex that Stop needs.
func TestDeafHandlersAreCutAndNamed(t *testing.T) {
	for _, gone := range []bool{false, true} {
		t.Run(map[bool]string{false: "waited for", true: "client gone"}[gone], func(t *testing.T) {
			begun, leave := make(chan context.Context, 1), make(chan struct{})
			r := serve(t, &service{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
				begun <- ctx
				<-leave
				return &pb.SimpleResponse{}, nil
			}})
			cc := dial(t, r.addr)
			told := make(chan error, 1)
			go func() {
				_, err := pb.NewTestServiceClient(cc).UnaryCall(limit(t), &pb.SimpleRequest{})
				told <- err
			}()
			call := mustGet(t, "call", begun)
			done := r.scope.Shutdown()
			if gone {
				cc.Close()
				mustGet(t, "the end of the client", call.Done())
			}
			r.scope.Force(errors.New("out of time"))
			err := mustGet(t, "Serve returns", r.served)
			equal(t, "Serve", err.Error(), "grpcdrain: 1 call cut off (out of time): grpc/grpc.testing.TestService/UnaryCall ×1")
			mustGet(t, "the client is told", told)
			close(leave)
			mustGet(t, "completion", done.Done())
		})
	}
}

// A connection that the server's credentials have handed to somebody else is not waited for: that one may keep it.
func TestDispatchedConnectionsAreNotOurs(t *testing.T) {
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
	theirs := mustGet(t, "what is handed on", creds.theirs)
	defer theirs.Close()
	cc := dial(t, r.addr)
	go pb.NewTestServiceClient(cc).UnaryCall(limit(t), &pb.SimpleRequest{})
	call := mustGet(t, "call", begun)
	done := s.Shutdown()
	cc.Close() // so that Stop waits for the handler
	mustGet(t, "the end of the client", call.Done())
	s.Force(errors.New("out of time"))
	var cut *grpcdrain.CutError
	if err := mustGet(t, "Serve returns", r.served); !errors.As(err, &cut) {
		t.Errorf("Serve returned %v", err)
	}
	if _, err := nc.Write([]byte("x")); err != nil {
		t.Errorf("the connection of somebody else: %v", err)
	}
	close(leave)
	mustGet(t, "completion", done.Done())
}

// A dispatcher hands on what does not begin as HTTP/2 does.
type dispatcher struct {
	credentials.TransportCredentials
	theirs chan net.Conn
}

func (d dispatcher) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	begin := make([]byte, 1)
	if _, err := c.Read(begin); err != nil {
		return nil, nil, err
	}
	if begin[0] == 'P' {
		return d.TransportCredentials.ServerHandshake(&read{c, io.MultiReader(bytes.NewReader(begin), c)})
	}
	d.theirs <- c
	return nil, nil, credentials.ErrConnDispatched
}

func (d dispatcher) Clone() credentials.TransportCredentials { return d }

// read is a connection of which something has been read already.
type read struct {
	net.Conn
	all io.Reader
}

func (r *read) Read(b []byte) (int, error) { return r.all.Read(b) }

func TestCutErrorIsOneLine(t *testing.T) {
	e := &grpcdrain.CutError{Cause: ctxshutdown.ErrForced}
	equal(t, "no calls", e.Error(), "grpcdrain: connections cut off before they were drained (ctxshutdown: forced)")
	for range 12 {
		e.Calls = append(e.Calls, ctxshutdown.GuardEntry{Count: 2})
	}
	e.Calls[0] = ctxshutdown.GuardEntry{Path: "a/b", Count: 1, Oldest: 1500 * time.Millisecond}
	equal(t, "many", e.Error(), "grpcdrain: 23 calls cut off (ctxshutdown: forced): a/b ×1 for 1.5s, (unnamed) ×2, (unnamed) ×2, "+
		"(unnamed) ×2, (unnamed) ×2, (unnamed) ×2, (unnamed) ×2, (unnamed) ×2, (unnamed) ×2, (unnamed) ×2, …")
}

// An idle client is turned away by GOAWAY and keeps nobody waiting.
func TestIdleConnectionIsSentAway(t *testing.T) {
	r := serve(t, &service{unary: echo})
	cc := dial(t, r.addr)
	_, err := pb.NewTestServiceClient(cc).UnaryCall(limit(t), &pb.SimpleRequest{})
	equal(t, "a call", err, nil)
	for state := cc.GetState(); state != connectivity.Ready; state = cc.GetState() { // grpc says so after the first call may begin
		if !cc.WaitForStateChange(limit(t), state) {
			t.Fatalf("the client stays in state %v", state)
		}
	}
	r.scope.Shutdown()
	equal(t, "Serve", mustGet(t, "Serve returns", r.served), nil)
	if !cc.WaitForStateChange(limit(t), connectivity.Ready) {
		t.Error("the client believes to be connected")
	}
}

// A client that connects and does not end its handshake would hold up GracefulStop, and Stop as well, for two minutes.
func TestSilentConnectionHoldsNobodyUp(t *testing.T) {
	cert, err := credentials.NewServerTLSFromFile(testdata.Path("x509/server1_cert.pem"), testdata.Path("x509/server1_key.pem"))
	equal(t, "certificate", err, nil)
	ca, err := credentials.NewClientTLSFromFile(testdata.Path("x509/server_ca_cert.pem"), "x.test.example.com")
	equal(t, "certificate", err, nil)
	for _, c := range []struct {
		name, says     string
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
			equal(t, "Dial", err, nil)
			defer silent.Close()
			_, err = io.WriteString(silent, c.says)
			equal(t, "Write", err, nil)
			// It has been accepted: this call comes over a connection that stood behind it in the queue.
			_, err = r.client(t, grpc.WithTransportCredentials(c.client)).UnaryCall(limit(t), &pb.SimpleRequest{})
			equal(t, "a call", err, nil)
			s.Shutdown()
			equal(t, "Serve", mustGet(t, "Serve returns", r.served), nil)
		})
	}
}

func TestHealthIsFirst(t *testing.T) {
	s := ctxshutdown.New(t.Context())
	h := health.NewServer()
	srv := grpc.NewServer(interceptors(s)...)
	healthpb.RegisterHealthServer(srv, h)
	entered, goOn := make(chan struct{}), make(chan struct{})
	pb.RegisterTestServiceServer(srv, &service{unary: func(ctx context.Context, req *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		close(entered)
		<-goOn
		// The connection of a call under way is open still, and so is its health.
		resp, err := h.Check(ctx, &healthpb.HealthCheckRequest{})
		if err == nil {
			equal(t, "health during the drain", resp.GetStatus(), healthpb.HealthCheckResponse_NOT_SERVING)
		}
		return &pb.SimpleResponse{}, err
	}})
	r := serveOn(t, s, srv, grpcdrain.Health(h), nil)
	cc := dial(t, r.addr)
	watch, err := healthpb.NewHealthClient(cc).Watch(limit(t), &healthpb.HealthCheckRequest{})
	equal(t, "Watch", err, nil)
	m, err := watch.Recv()
	equal(t, "error", err, nil)
	equal(t, "health", m.GetStatus(), healthpb.HealthCheckResponse_SERVING)
	answered := make(chan error, 1)
	go func() {
		_, err := pb.NewTestServiceClient(cc).UnaryCall(limit(t), &pb.SimpleRequest{})
		answered <- err
	}()
	mustGet(t, "the call", entered)
	s.Shutdown()
	for err == nil { // NOT_SERVING or not, then the end: it would never come by itself
		m, err = watch.Recv()
		if err == nil {
			equal(t, "health", m.GetStatus(), healthpb.HealthCheckResponse_NOT_SERVING)
		}
	}
	equal(t, "the watch ended", status.Code(err), codes.Unavailable)
	close(goOn)
	equal(t, "answer", mustGet(t, "answer", answered), nil)
	equal(t, "Serve", mustGet(t, "Serve returns", r.served), nil)
}

// In a process, health turns with its readiness, while everything is served still.
func TestHealthInTheLameDuck(t *testing.T) {
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
	equal(t, "Watch", err, nil)
	for i, want := range []healthpb.HealthCheckResponse_ServingStatus{healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING} {
		if i == 1 {
			sigterm()
		}
		m, err := watch.Recv()
		equal(t, "error", err, nil)
		equal(t, "health", m.GetStatus(), want)
	}
	equal(t, "the stop", r.scope.Err(), nil)
	_, err = r.client(t).UnaryCall(limit(t), &pb.SimpleRequest{}) // on a connection of its own
	equal(t, "a call in the lame duck", err, nil)
	r.scope.Shutdown()
	equal(t, "Run", mustGet(t, "Run returns", end), nil)
}

func TestServeWithoutInterceptors(t *testing.T) {
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
	equal(t, "the client got", mustGet(t, "answer", got), nil)
	equal(t, "Serve", mustGet(t, "Serve returns", r.served), nil)
}

func TestServeOfAStoppedScope(t *testing.T) {
	for name, stop := range map[string]func(*ctxshutdown.Swansong){
		"stopped": func(s *ctxshutdown.Swansong) { s.Shutdown() },
		"forced":  func(s *ctxshutdown.Swansong) { s.Force(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			s := ctxshutdown.New(t.Context())
			stop(s)
			srv := grpc.NewServer(interceptors(s)...)
			r := serveOn(t, s, srv)
			equal(t, "Serve", mustGet(t, "Serve returns", r.served), nil)
			if c, err := net.Dial("tcp", r.addr); err == nil {
				c.Close()
				t.Error("it listens")
			}
			equal(t, "guards", s.GuardCount(), 0)
		})
	}
}

func TestServerStoppedByItself(t *testing.T) {
	s := ctxshutdown.New(t.Context())
	srv := grpc.NewServer(interceptors(s)...)
	pb.RegisterTestServiceServer(srv, &service{unary: echo})
	r := serveOn(t, s, srv)
	_, err := r.client(t).UnaryCall(limit(t), &pb.SimpleRequest{})
	equal(t, "a call", err, nil)
	srv.Stop()
	equal(t, "Serve", mustGet(t, "Serve returns", r.served), nil)
	equal(t, "guards", s.GuardCount(), 0)

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

// A listener that fails is reported at once; the connections that there are drain.
func TestListenerFails(t *testing.T) {
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
	ln.Close() // wakes Accept
	equal(t, "Serve", mustGet(t, "Serve returns", served), errFailed)
	close(goOn)
	equal(t, "the client got", mustGet(t, "answer", got), nil)
	if err := s.Shutdown().Wait(limit(t)); err != nil {
		t.Error(err)
	}
}

// One that fails as the stop comes changes nothing for a Serve that is told to stop: it returns when all has drained.
func TestListenerFailsAtTheStop(t *testing.T) {
	for range 200 {
		s := ctxshutdown.New(t.Context())
		ln := &failing{Listener: stopping{listen(t), s}, fail: make(chan struct{}), err: errors.New("no more files")}
		close(ln.fail)
		equal(t, "Serve", grpcdrain.Serve(s, grpc.NewServer(), ln), nil)
		equal(t, "guards", s.GuardCount(), 0)
		if t.Failed() {
			return
		}
	}
}

// A stopping listener tells a scope to stop when it is first asked for a connection.
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

func TestBadInputOfServe(t *testing.T) {
	s, srv, ln := ctxshutdown.New(t.Context()), grpc.NewServer(), listen(t)
	for want, err := range map[string]error{
		"grpcdrain: Serve with a nil scope":                       grpcdrain.Serve(nil, srv, ln),
		"grpcdrain: Serve with a nil *grpc.Server":                grpcdrain.Serve(s, nil, ln),
		"grpcdrain: Serve with a nil net.Listener":                grpcdrain.Serve(s, srv, nil),
		"grpcdrain: Health of a nil *health.Server":               grpcdrain.Serve(s, srv, ln, grpcdrain.Health(nil)),
		"grpcdrain: KeepaliveTimeout(-1s): it has to be positive": grpcdrain.Serve(s, srv, ln, grpcdrain.KeepaliveTimeout(-time.Second)),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	equal(t, "guards", s.GuardCount(), 0)
}
