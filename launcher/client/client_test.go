//go:build unix

package client_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/launcher/client"
	"github.com/swansong-go/swansong/launcher/internal/peer"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tooLong is for broken code.
const tooLong = 10 * time.Second

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// A peerOf is a process, and who asks it.
type peerOf struct {
	*client.Lifecycle
	t      *testing.T
	ctx    context.Context
	child  pb.ProcessLifecycleInterfaceClient
	health healthpb.HealthClient
}

func serve(t *testing.T, opts ...client.Option) *peerOf {
	t.Helper()
	dir, err := os.MkdirTemp("", "swc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	life, err := client.Serve(append([]client.Option{client.WithAddress(path), client.WithProcessID("p-1"), client.WithSignals(syscall.SIGUSR1)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(life.Close)
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(peer.Credentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	t.Cleanup(cancel)
	return &peerOf{life, t, ctx, pb.NewProcessLifecycleInterfaceClient(conn), healthpb.NewHealthClient(conn)}
}

func (p *peerOf) shutdown(in *pb.ShutdownRequest) *pb.ShutdownAck {
	p.t.Helper()
	ack, err := p.child.Shutdown(p.ctx, in)
	if err != nil {
		p.t.Fatal(err)
	}
	return ack
}

func (p *peerOf) status() *pb.ShutdownStatus {
	p.t.Helper()
	st, err := p.child.GetShutdownStatus(p.ctx, &pb.ShutdownStatusRequest{ProcessId: "p-1"})
	if err != nil {
		p.t.Fatal(err)
	}
	return st
}

func (p *peerOf) readiness() pb.ReadinessResponse_ReadinessState {
	p.t.Helper()
	r, err := p.child.GetReadinessStatus(p.ctx, &pb.ReadinessRequest{})
	if err != nil {
		p.t.Fatal(err)
	}
	return r.GetState()
}

func (p *peerOf) serving() healthpb.HealthCheckResponse_ServingStatus {
	p.t.Helper()
	r, err := p.health.Check(p.ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		p.t.Fatal(err)
	}
	return r.GetStatus()
}

// However often a process is asked to stop, it answers, always the same, and drains once.
func TestShutdownIsIdempotent(t *testing.T) {
	p := serve(t)
	first := p.shutdown(&pb.ShutdownRequest{ProcessId: "p-1", Reason: "the first", GracePeriodMs: 1500, GracePeriodSeconds: 2})
	equal(t, "acknowledged", first.GetAcknowledged(), true)
	equal(t, "estimate", first.GetEstimatedMs(), int64(1500))
	for range 5 {
		again := p.shutdown(&pb.ShutdownRequest{ProcessId: "p-1", Reason: "another", GracePeriodSeconds: 100})
		equal(t, "answer", again.GetMessage(), first.GetMessage())
		equal(t, "estimate", again.GetEstimatedMs(), int64(1500))
	}
	drains := 0
	if err := p.Shutdown.Run(p.ctx, func(context.Context) error { drains++; return nil }); err != nil {
		t.Error(err)
	}
	equal(t, "drains", drains, 1)
	equal(t, "state", p.status().GetState(), pb.ShutdownStatus_SHUTDOWN_COMPLETE)
	if err := p.Shutdown.Run(p.ctx, func(context.Context) error { drains++; return nil }); err == nil || drains != 1 {
		t.Errorf("a second Run: %v, %d drains", err, drains)
	}
}

// A signal is a Shutdown; one that comes later ends the context of the drain, and no sooner.
func TestSignalsAreShutdowns(t *testing.T) {
	p := serve(t)
	signal := func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
	}
	p.Readiness.Set(client.Ready, "")
	signal()
	err := p.Shutdown.Run(p.ctx, func(ctx context.Context) error {
		if ctx.Err() != nil {
			t.Errorf("the context of the drain has ended: %v", context.Cause(ctx))
		}
		p.shutdown(&pb.ShutdownRequest{Reason: "too late to be the reason"})
		if ctx.Err() != nil {
			t.Errorf("the context of the drain has ended by a call: %v", context.Cause(ctx))
		}
		signal()
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if !errors.Is(err, client.ErrSignal) {
		t.Errorf("Run: %v", err)
	}
	equal(t, "exit code", client.ExitCode(err), 1)
	equal(t, "what it says of the drain", p.status().GetDrainError(), "client: a signal has cut the drain short: user defined signal 1")
	equal(t, "state", p.status().GetState(), pb.ShutdownStatus_SHUTDOWN_BLOCKED)
}

// A signal says no limits. Where the environment says when the process is killed, the drain has until shortly before.
func TestASignalHasTheTimeThatThereIs(t *testing.T) {
	limits := client.WithLimits(time.Second, 7*time.Second)
	for _, c := range []struct {
		seconds string
		opts    []client.Option
		want    [2]time.Duration
	}{
		{"", nil, [2]time.Duration{client.DefaultGrace, client.DefaultMax}},
		{"12", nil, [2]time.Duration{client.DefaultGrace, client.DefaultMax}}, // which is the export of the defaults
		{"62", nil, [2]time.Duration{client.DefaultGrace, time.Minute}},
		{"1", nil, [2]time.Duration{800 * time.Millisecond, 800 * time.Millisecond}},
		{"62", []client.Option{limits}, [2]time.Duration{time.Second, 7 * time.Second}},
		{"62", []client.Option{client.WithAddress(filepath.Join(t.TempDir(), "s"))}, [2]time.Duration{client.DefaultGrace, client.DefaultMax}},
	} {
		t.Setenv("TERMINATION_GRACE_PERIOD_SECONDS", c.seconds)
		life, err := client.Serve(append(c.opts, client.WithSignals(syscall.SIGUSR1))...)
		if err != nil {
			t.Fatal(err)
		}
		syscall.Kill(os.Getpid(), syscall.SIGUSR1)
		<-life.Shutdown.Requested()
		r, _ := life.Shutdown.Request(client.Request{})
		equal(t, "grace and max with "+c.seconds, [2]time.Duration{r.Grace, r.Max}, c.want)
		life.Close()
	}
	for _, odd := range []string{"30s", "0", "-1", "99999999999999999999"} {
		t.Setenv("TERMINATION_GRACE_PERIOD_SECONDS", odd)
		if life, err := client.Serve(); err == nil || !strings.Contains(err.Error(), odd) {
			t.Errorf("%s: %v, %v", odd, life, err)
		}
	}
}

// Those who balance load hear of a shutdown before anybody else.
func TestHealthIsNotServingFirst(t *testing.T) {
	p := serve(t)
	equal(t, "health at first", p.serving(), healthpb.HealthCheckResponse_NOT_SERVING)
	equal(t, "readiness at first", p.readiness(), pb.ReadinessResponse_STARTING)
	p.Readiness.Set(client.Warming, "")
	equal(t, "readiness", p.readiness(), pb.ReadinessResponse_WARMING)
	var ok atomic.Bool
	p.Readiness.Check(client.CheckWarmed, ok.Load)
	p.Readiness.Set(client.Ready, "")
	equal(t, "readiness while a check fails", p.readiness(), pb.ReadinessResponse_WARMING)
	ok.Store(true)
	equal(t, "readiness", p.readiness(), pb.ReadinessResponse_READY)
	equal(t, "health", p.serving(), healthpb.HealthCheckResponse_SERVING)
	ok.Store(false)
	equal(t, "readiness when a check fails later", p.readiness(), pb.ReadinessResponse_UNHEALTHY)
	equal(t, "health", p.serving(), healthpb.HealthCheckResponse_NOT_SERVING)
	ok.Store(true)
	equal(t, "readiness when it passes again", p.readiness(), pb.ReadinessResponse_READY)

	heard := make(chan [2]string, 1)
	go func() {
		<-p.Shutdown.Requested()
		heard <- [2]string{p.serving().String(), p.readiness().String()}
	}()
	p.shutdown(&pb.ShutdownRequest{})
	equal(t, "who waits for the request sees", <-heard, [2]string{"NOT_SERVING", "DRAINING"})
	p.Readiness.Set(client.Ready, "never again")
	equal(t, "readiness", p.readiness(), pb.ReadinessResponse_DRAINING)
}

// registered is what a program's own server is given.
type registered struct{ healthpb.HealthServer }

func (r *registered) RegisterService(_ *grpc.ServiceDesc, impl any) {
	r.HealthServer = impl.(healthpb.HealthServer)
}

// Without a launcher that asks, grpc.health.v1 and systemd hear of checks as well.
func TestChecksAreMirroredWhenNobodyAsks(t *testing.T) {
	told := notified(t)
	synctest.Test(t, func(t *testing.T) {
		life, err := client.Serve(client.WithSignals())
		if err != nil {
			t.Fatal(err)
		}
		defer life.Close()
		var server registered
		life.RegisterHealth(&server)
		after := func(d time.Duration) healthpb.HealthCheckResponse_ServingStatus {
			time.Sleep(d)
			synctest.Wait()
			r, err := server.Check(t.Context(), &healthpb.HealthCheckRequest{})
			if err != nil {
				t.Fatal(err)
			}
			return r.GetStatus()
		}
		var ok atomic.Bool
		var calls atomic.Int32
		life.Readiness.Check("db", func() bool { calls.Add(1); return ok.Load() })
		after(time.Hour)
		equal(t, "calls before it counts", calls.Load(), int32(0))
		life.Readiness.Set(client.Ready, "listening")
		equal(t, "health while a check fails", after(2*time.Second), healthpb.HealthCheckResponse_NOT_SERVING)
		ok.Store(true)
		if got := after(time.Second); got != healthpb.HealthCheckResponse_SERVING {
			t.Fatalf("a second after the check passes health is %v", got) // and systemd is not told
		}
		equal(t, "systemd", told(), "READY=1\nSTATUS=listening")
		ok.Store(false)
		equal(t, "health a second after it fails", after(time.Second), healthpb.HealthCheckResponse_NOT_SERVING)
		ok.Store(true)
		equal(t, "health a second after it passes again", after(time.Second), healthpb.HealthCheckResponse_SERVING)

		life.Shutdown.Request(client.Request{})
		before := calls.Load()
		equal(t, "health in the shutdown", after(time.Hour), healthpb.HealthCheckResponse_NOT_SERVING)
		equal(t, "calls in the shutdown", calls.Load(), before)
	})
}

// Where an export says that somebody probes, there is a port with grpc.health.v1, and with nothing by which to stop the process.
func TestHealthIsServedWhereTheExportSays(t *testing.T) {
	var life *client.Lifecycle
	var port string
	for life == nil {
		taken, err := net.Listen("tcp", ":0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ = net.SplitHostPort(taken.Addr().String())
		t.Setenv(client.EnvHealth, port)
		if life, err := client.Serve(client.WithSignals()); err == nil || !strings.Contains(err.Error(), client.EnvHealth+`="`+port+`"`) {
			t.Fatalf("a port that is somebody else's: %v, %v", life, err)
		}
		serve(t) // a launcher is there, and asks elsewhere
		taken.Close()
		life, err = client.Serve(client.WithSignals())
		if err != nil && !errors.Is(err, syscall.EADDRINUSE) { // else somebody was quicker
			t.Fatal(err)
		}
	}
	defer life.Close()
	conn, err := grpc.NewClient("127.0.0.1:"+port, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), tooLong)
	defer cancel()
	p := &peerOf{life, t, ctx, pb.NewProcessLifecycleInterfaceClient(conn), healthpb.NewHealthClient(conn)}
	equal(t, "health at first", p.serving(), healthpb.HealthCheckResponse_NOT_SERVING)
	life.Readiness.Set(client.Ready, "")
	equal(t, "health", p.serving(), healthpb.HealthCheckResponse_SERVING)
	_, err = p.child.Shutdown(ctx, &pb.ShutdownRequest{})
	equal(t, "a shutdown of anybody's", status.Code(err), codes.Unimplemented)
	life.Shutdown.Request(client.Request{})
	equal(t, "health in the shutdown", p.serving(), healthpb.HealthCheckResponse_NOT_SERVING)

	for _, odd := range []string{"0", "65536", "http"} {
		t.Setenv(client.EnvHealth, odd)
		if life, err := client.Serve(client.WithSignals()); err == nil || !strings.Contains(err.Error(), "must be 1 to 65535") {
			t.Errorf("%s: %v, %v", odd, life, err)
		}
	}
}

// The status names who holds guards, and asks for what was asked for.
func TestStatusSaysWhoBlocks(t *testing.T) {
	p := serve(t)
	s := ctxshutdown.New(context.Background())
	defer s.Shutdown()
	p.Shutdown.Track(s)
	p.Shutdown.SetMetrics(client.Metrics{InFlight: 2, Connections: 3, BufferedBytes: 4})
	orders, cancel := ctxshutdown.WithCancel(s, ctxshutdown.WithName("orders"))
	defer cancel()
	g := orders.Guard()
	m := p.status().GetMetrics()
	equal(t, "in flight", m.GetInFlightRequests(), int32(3))
	equal(t, "connections", m.GetOpenConnections(), int32(3))
	equal(t, "bytes", m.GetBufferedBytes(), int64(4))
	equal(t, "who blocks", m.GetBlockingOperations(), []string{"orders ×1"})

	p.shutdown(&pb.ShutdownRequest{})
	err := p.Shutdown.Run(p.ctx, func(ctx context.Context) error {
		equal(t, "state", p.status().GetState(), pb.ShutdownStatus_SHUTDOWN_DRAINING)
		over := p.Shutdown.Block("the broker")
		equal(t, "state", p.status().GetState(), pb.ShutdownStatus_SHUTDOWN_BLOCKED)
		over()
		over()
		equal(t, "state", p.status().GetState(), pb.ShutdownStatus_SHUTDOWN_DRAINING)
		equal(t, "wants more time", p.status().GetNeedMoreTime(), false)
		p.Shutdown.RequestMoreTime(time.Hour)
		st := p.status()
		equal(t, "wants more time", st.GetNeedMoreTime(), true)
		if got := time.Duration(st.GetAdditionalMs()) * time.Millisecond; got <= time.Hour-tooLong || got > time.Hour {
			t.Errorf("it wants %v more", got)
		}
		equal(t, "in seconds", st.GetAdditionalSeconds() > 3580, true)
		equal(t, "requests", st.GetMoreTimeRequests(), int32(1))
		g.Release()
		return s.Shutdown().Wait(ctx)
	})
	if err != nil {
		t.Error(err)
	}
}

// The context of the drain ends at the maximum, in milliseconds where the request has them.
func TestDrainEndsAtTheMaximum(t *testing.T) {
	p := serve(t)
	p.shutdown(&pb.ShutdownRequest{GracePeriodMs: 20, MaxShutdownMs: 50, MaxShutdownSeconds: 1})
	err := p.Shutdown.Run(p.ctx, func(ctx context.Context) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if !errors.Is(err, client.ErrDeadline) {
		t.Errorf("Run: %v", err)
	}
}

func TestCallsForAnotherProcess(t *testing.T) {
	p := serve(t)
	_, err := p.child.Shutdown(p.ctx, &pb.ShutdownRequest{ProcessId: "p-2"})
	equal(t, "code", status.Code(err), codes.NotFound)
	equal(t, "state", p.status().GetState(), pb.ShutdownStatus_RUNNING)
}

// Run without a request is ended by its context, and does not drain.
func TestRunEndsWithItsContext(t *testing.T) {
	p := serve(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("no longer needed")
	cancel(why)
	err := p.Shutdown.Run(ctx, func(context.Context) error { t.Error("it drains"); return nil })
	if err != why {
		t.Errorf("Run: %v, want %v", err, why)
	}
}

// notified is systemd, and returns what it is told next.
func notified(t *testing.T) (told func() string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "swn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	addr := &net.UnixAddr{Name: filepath.Join(dir, "n"), Net: "unixgram"}
	conn, err := net.ListenUnixgram("unixgram", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetReadDeadline(time.Now().Add(tooLong))
	t.Setenv("NOTIFY_SOCKET", addr.Name)
	return func() string {
		buf := make([]byte, 1000)
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
}

// Where systemd asks for it, it is told the same.
func TestSystemdIsTold(t *testing.T) {
	told := notified(t)
	p := serve(t)
	p.Readiness.Set(client.Ready, "listening")
	equal(t, "at ready", told(), "READY=1\nSTATUS=listening")
	p.shutdown(&pb.ShutdownRequest{})
	equal(t, "at the shutdown", told(), "STOPPING=1")
	p.Shutdown.RequestMoreTime(2 * time.Second)
	equal(t, "at a request for more time", told(), "EXTEND_TIMEOUT_USEC=2000000")
}
