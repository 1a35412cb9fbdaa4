//go:build unix

package client_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/testkit"
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

// tooLong is a timeout that only broken code reaches.
const tooLong = 10 * time.Second

// A served value is a Lifecycle together with clients of its services.
type served struct {
	*client.Lifecycle
	t      *testing.T
	ctx    context.Context
	child  pb.ProcessLifecycleInterfaceClient
	health healthpb.HealthClient
}

func serve(t *testing.T, opts ...client.Option) *served {
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
	return &served{life, t, ctx, pb.NewProcessLifecycleInterfaceClient(conn), healthpb.NewHealthClient(conn)}
}

func (p *served) shutdown(in *pb.ShutdownRequest) *pb.ShutdownAck {
	p.t.Helper()
	ack, err := p.child.Shutdown(p.ctx, in)
	if err != nil {
		p.t.Fatal(err)
	}
	return ack
}

func (p *served) status() *pb.ShutdownStatus {
	p.t.Helper()
	st, err := p.child.GetShutdownStatus(p.ctx, &pb.ShutdownStatusRequest{ProcessId: "p-1"})
	if err != nil {
		p.t.Fatal(err)
	}
	return st
}

func (p *served) readiness() pb.ReadinessResponse_ReadinessState {
	p.t.Helper()
	r, err := p.child.GetReadinessStatus(p.ctx, &pb.ReadinessRequest{})
	if err != nil {
		p.t.Fatal(err)
	}
	return r.GetState()
}

func (p *served) serving() healthpb.HealthCheckResponse_ServingStatus {
	p.t.Helper()
	r, err := p.health.Check(p.ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		p.t.Fatal(err)
	}
	return r.GetStatus()
}

// Every request to stop gets the same answer, and the process drains once.
func TestShutdown_RepeatedRequestGetsSameAnswer(t *testing.T) {
	p := serve(t)
	first := p.shutdown(&pb.ShutdownRequest{ProcessId: "p-1", Reason: "the first", GracePeriodMs: 1500, GracePeriodSeconds: 2})
	testkit.Equal(t, "acknowledged", first.GetAcknowledged(), true)
	testkit.Equal(t, "estimate", first.GetEstimatedMs(), int64(1500))
	for range 5 {
		again := p.shutdown(&pb.ShutdownRequest{ProcessId: "p-1", Reason: "another", GracePeriodSeconds: 100})
		testkit.Equal(t, "answer", again.GetMessage(), first.GetMessage())
		testkit.Equal(t, "estimate", again.GetEstimatedMs(), int64(1500))
	}
	drains := 0
	if err := p.Shutdown.Run(p.ctx, func(context.Context) error { drains++; return nil }); err != nil {
		t.Error(err)
	}
	testkit.Equal(t, "drains", drains, 1)
	testkit.Equal(t, "state", p.status().GetState(), pb.ShutdownStatus_SHUTDOWN_COMPLETE)
	if err := p.Shutdown.Run(p.ctx, func(context.Context) error { drains++; return nil }); err == nil || drains != 1 {
		t.Errorf("a second Run: %v, %d drains", err, drains)
	}
}

// A signal requests a shutdown. During the drain, a second signal ends the context of the drain,
// and a shutdown request of the launcher does not.
func TestSignal_FirstRequestsShutdownAndSecondCancelsDrain(t *testing.T) {
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
		p.shutdown(&pb.ShutdownRequest{Reason: "ignored"})
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
	testkit.Equal(t, "exit code", client.ExitCode(err), 1)
	testkit.Equal(t, "drain error", p.status().GetDrainError(), "client: a signal ended the drain early: user defined signal 1")
	testkit.Equal(t, "state", p.status().GetState(), pb.ShutdownStatus_SHUTDOWN_BLOCKED)
}

// A signal, unlike a request of a launcher, contains no time limits. If the environment says when
// the process will be killed, the maximum of the drain is shortly before that.
func TestSignal_LimitsDrainToTerminationGracePeriod(t *testing.T) {
	limits := client.WithLimits(time.Second, 7*time.Second)
	for _, c := range []struct {
		seconds string
		opts    []client.Option
		want    [2]time.Duration
	}{
		{"", nil, [2]time.Duration{client.DefaultGrace, client.DefaultMax}},
		// For a group with default limits, "launcher export" writes files that set the variable to
		// 12.
		{"12", nil, [2]time.Duration{client.DefaultGrace, client.DefaultMax}},
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
		testkit.Equal(t, "grace and max with "+c.seconds, [2]time.Duration{r.Grace, r.Max}, c.want)
		life.Close()
	}
	for _, odd := range []string{"30s", "0", "-1", "99999999999999999999"} {
		t.Setenv("TERMINATION_GRACE_PERIOD_SECONDS", odd)
		if life, err := client.Serve(); err == nil || !strings.Contains(err.Error(), odd) {
			t.Errorf("%s: %v, %v", odd, life, err)
		}
	}
}

// grpc.health.v1 is NOT_SERVING before the process learns of the shutdown.
func TestHealth_IsNotServingBeforeDrainBegins(t *testing.T) {
	p := serve(t)
	testkit.Equal(t, "health at first", p.serving(), healthpb.HealthCheckResponse_NOT_SERVING)
	testkit.Equal(t, "readiness at first", p.readiness(), pb.ReadinessResponse_STARTING)
	p.Readiness.Set(client.Warming, "")
	testkit.Equal(t, "readiness", p.readiness(), pb.ReadinessResponse_WARMING)
	var ok atomic.Bool
	p.Readiness.Check(client.CheckWarmed, ok.Load)
	p.Readiness.Set(client.Ready, "")
	testkit.Equal(t, "readiness while a check fails", p.readiness(), pb.ReadinessResponse_WARMING)
	ok.Store(true)
	testkit.Equal(t, "readiness", p.readiness(), pb.ReadinessResponse_READY)
	testkit.Equal(t, "health", p.serving(), healthpb.HealthCheckResponse_SERVING)
	ok.Store(false)
	testkit.Equal(t, "readiness when a check fails later", p.readiness(), pb.ReadinessResponse_UNHEALTHY)
	testkit.Equal(t, "health", p.serving(), healthpb.HealthCheckResponse_NOT_SERVING)
	ok.Store(true)
	testkit.Equal(t, "readiness when it passes again", p.readiness(), pb.ReadinessResponse_READY)

	answers := make(chan [2]string, 1)
	go func() {
		<-p.Shutdown.Requested()
		answers <- [2]string{p.serving().String(), p.readiness().String()}
	}()
	p.shutdown(&pb.ShutdownRequest{})
	testkit.Equal(t, "health and readiness when Requested is closed", <-answers, [2]string{"NOT_SERVING", "DRAINING"})
	p.Readiness.Set(client.Ready, "never again")
	testkit.Equal(t, "readiness", p.readiness(), pb.ReadinessResponse_DRAINING)
}

// registered is a server that records which health service is registered with it.
type registered struct{ healthpb.HealthServer }

func (r *registered) RegisterService(_ *grpc.ServiceDesc, impl any) {
	r.HealthServer = impl.(healthpb.HealthServer)
}

// Even if no launcher asks for the readiness, grpc.health.v1 and systemd follow the checks.
func TestChecks_UpdateHealthWithoutLauncher(t *testing.T) {
	systemd := fakeSystemd(t)
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
		testkit.Equal(t, "calls before Ready is set", calls.Load(), int32(0))
		life.Readiness.Set(client.Ready, "listening")
		testkit.Equal(t, "health while a check fails", after(2*time.Second), healthpb.HealthCheckResponse_NOT_SERVING)
		ok.Store(true)
		if got := after(time.Second); got != healthpb.HealthCheckResponse_SERVING {
			// End the test here. No READY=1 has been sent, so the call of systemd below would wait
			// for ever.
			t.Fatalf("a second after the check passes health is %v", got)
		}
		testkit.Equal(t, "systemd", systemd(), "READY=1\nSTATUS=listening")
		ok.Store(false)
		testkit.Equal(t, "health a second after it fails", after(time.Second), healthpb.HealthCheckResponse_NOT_SERVING)
		ok.Store(true)
		testkit.Equal(t, "health a second after it passes again", after(time.Second), healthpb.HealthCheckResponse_SERVING)

		life.Shutdown.Request(client.Request{})
		before := calls.Load()
		testkit.Equal(t, "health in the shutdown", after(time.Hour), healthpb.HealthCheckResponse_NOT_SERVING)
		testkit.Equal(t, "calls in the shutdown", calls.Load(), before)
	})
}

// The port of EnvHealth serves grpc.health.v1, but not the lifecycle protocol, so clients of that
// port cannot stop the process.
func TestHealthPort_ServesOnlyHealth(t *testing.T) {
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
			t.Fatalf("a port in use: %v, %v", life, err)
		}
		serve(t) // under a launcher, serve must ignore EnvHealth
		taken.Close()
		life, err = client.Serve(client.WithSignals())
		// EADDRINUSE means that another process has taken the port since the listener was closed.
		if err != nil && !errors.Is(err, syscall.EADDRINUSE) {
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
	p := &served{life, t, ctx, pb.NewProcessLifecycleInterfaceClient(conn), healthpb.NewHealthClient(conn)}
	testkit.Equal(t, "health at first", p.serving(), healthpb.HealthCheckResponse_NOT_SERVING)
	life.Readiness.Set(client.Ready, "")
	testkit.Equal(t, "health", p.serving(), healthpb.HealthCheckResponse_SERVING)
	_, err = p.child.Shutdown(ctx, &pb.ShutdownRequest{})
	testkit.Equal(t, "code of a call of Shutdown", status.Code(err), codes.Unimplemented)
	life.Shutdown.Request(client.Request{})
	testkit.Equal(t, "health in the shutdown", p.serving(), healthpb.HealthCheckResponse_NOT_SERVING)

	for _, odd := range []string{"0", "65536", "http"} {
		t.Setenv(client.EnvHealth, odd)
		if life, err := client.Serve(client.WithSignals()); err == nil || !strings.Contains(err.Error(), "must be a number from 1 to 65535") {
			t.Errorf("%s: %v, %v", odd, life, err)
		}
	}
}

// The status names the guards that block the shutdown, and contains the request for more time.
func TestStatus_NamesGuardsThatBlockShutdown(t *testing.T) {
	p := serve(t)
	s := ctxshutdown.New(context.Background())
	defer s.Shutdown()
	p.Shutdown.Track(s)
	p.Shutdown.SetMetrics(client.Metrics{InFlight: 2, Connections: 3, BufferedBytes: 4})
	orders, cancel := ctxshutdown.WithCancel(s, ctxshutdown.WithName("orders"))
	defer cancel()
	g := orders.Guard()
	m := p.status().GetMetrics()
	testkit.Equal(t, "in flight", m.GetInFlightRequests(), int32(3))
	testkit.Equal(t, "connections", m.GetOpenConnections(), int32(3))
	testkit.Equal(t, "bytes", m.GetBufferedBytes(), int64(4))
	testkit.Equal(t, "blocking operations", m.GetBlockingOperations(), []string{"orders ×1"})

	p.shutdown(&pb.ShutdownRequest{})
	err := p.Shutdown.Run(p.ctx, func(ctx context.Context) error {
		testkit.Equal(t, "state", p.status().GetState(), pb.ShutdownStatus_SHUTDOWN_DRAINING)
		unblock := p.Shutdown.Block("the broker")
		testkit.Equal(t, "state", p.status().GetState(), pb.ShutdownStatus_SHUTDOWN_BLOCKED)
		unblock()
		unblock()
		testkit.Equal(t, "state", p.status().GetState(), pb.ShutdownStatus_SHUTDOWN_DRAINING)
		testkit.Equal(t, "needs more time", p.status().GetNeedMoreTime(), false)
		p.Shutdown.RequestMoreTime(time.Hour)
		st := p.status()
		testkit.Equal(t, "needs more time", st.GetNeedMoreTime(), true)
		if got := time.Duration(st.GetAdditionalMs()) * time.Millisecond; got <= time.Hour-tooLong || got > time.Hour {
			t.Errorf("additional time %v", got)
		}
		testkit.Equal(t, "is it also in seconds", st.GetAdditionalSeconds() > 3580, true)
		testkit.Equal(t, "requests", st.GetMoreTimeRequests(), int32(1))
		g.Release()
		return s.Shutdown().Wait(ctx)
	})
	if err != nil {
		t.Error(err)
	}
}

// The context of the drain ends when the maximum time of the shutdown request has passed. If the
// request has that time in milliseconds and in seconds, the field MaxShutdownMs counts.
func TestRun_DrainContextEndsAtMaximumShutdownTime(t *testing.T) {
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

func TestService_RefusesCallsForAnotherProcess(t *testing.T) {
	p := serve(t)
	_, err := p.child.Shutdown(p.ctx, &pb.ShutdownRequest{ProcessId: "p-2"})
	testkit.Equal(t, "code", status.Code(err), codes.NotFound)
	testkit.Equal(t, "state", p.status().GetState(), pb.ShutdownStatus_RUNNING)
}

// If the context of Run ends before the process is asked to stop, Run returns without a drain.
func TestRun_ReturnsWithoutDrainWhenContextEnds(t *testing.T) {
	p := serve(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("no longer needed")
	cancel(why)
	err := p.Shutdown.Run(ctx, func(context.Context) error { t.Error("drain was called"); return nil })
	if err != why {
		t.Errorf("Run: %v, want %v", err, why)
	}
}

// fakeSystemd listens on a socket and sets NOTIFY_SOCKET to its path. It returns a function that
// waits for the next message.
func fakeSystemd(t *testing.T) (next func() string) {
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

// If NOTIFY_SOCKET is set, the client sends systemd each change of the process's readiness, the
// beginning of the shutdown, and each request for more time.
func TestRun_NotifiesSystemdOfStateChanges(t *testing.T) {
	systemd := fakeSystemd(t)
	p := serve(t)
	p.Readiness.Set(client.Ready, "listening")
	testkit.Equal(t, "message when ready", systemd(), "READY=1\nSTATUS=listening")
	p.shutdown(&pb.ShutdownRequest{})
	testkit.Equal(t, "message at the shutdown", systemd(), "STOPPING=1")
	p.Shutdown.RequestMoreTime(2 * time.Second)
	testkit.Equal(t, "message at a request for more time", systemd(), "EXTEND_TIMEOUT_USEC=2000000")
}

// In each case the context of the drain ends exactly at the time that its method Deadline returns.
func TestRun_DrainContextEndsAtItsDeadline(t *testing.T) {
	status := func(p *client.ShutdownCoordinator) { // status makes the call with which the launcher polls the process
		var r registrar
		client.Register(&r, p, nil)
		if _, err := r.service.GetShutdownStatus(t.Context(), &pb.ShutdownStatusRequest{}); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		name    string
		request client.Request
		during  func(p *client.ShutdownCoordinator) // called one second after the drain begins
		want    time.Duration
	}{
		{"the maximum", client.Request{}, nil, 10 * time.Second},
		{"an enforced grace period", client.Request{GraceEnforced: true}, nil, 3 * time.Second},
		{"more time, which the launcher has not read", client.Request{GraceEnforced: true}, func(p *client.ShutdownCoordinator) {
			p.RequestMoreTime(4 * time.Second)
		}, 3 * time.Second},
		{"more time", client.Request{GraceEnforced: true}, func(p *client.ShutdownCoordinator) {
			p.RequestMoreTime(4 * time.Second)
			status(p)
		}, 5 * time.Second},
		{"more time than the maximum", client.Request{GraceEnforced: true}, func(p *client.ShutdownCoordinator) {
			p.RequestMoreTime(time.Hour)
			status(p)
		}, 10 * time.Second},
		{"more time where the grace period is not enforced", client.Request{}, func(p *client.ShutdownCoordinator) {
			p.RequestMoreTime(time.Second)
			status(p)
		}, 10 * time.Second},
		{"a repeated request with less time", client.Request{}, func(p *client.ShutdownCoordinator) {
			p.Request(client.Request{Max: time.Second})
		}, 2 * time.Second},
		{"a repeated request with more time", client.Request{}, func(p *client.ShutdownCoordinator) {
			p.Request(client.Request{Max: time.Hour})
		}, 10 * time.Second},
		{"more time after a repeated request with less", client.Request{GraceEnforced: true}, func(p *client.ShutdownCoordinator) {
			p.Request(client.Request{Max: 5 * time.Second})
			p.RequestMoreTime(time.Hour)
			status(p)
		}, 6 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := client.NewShutdownCoordinator("p-1")
				begin := time.Now()
				p.Request(c.request)
				var deadline time.Time
				err := p.Run(t.Context(), func(ctx context.Context) error {
					time.Sleep(time.Second)
					if c.during != nil {
						c.during(p)
					}
					deadline, _ = ctx.Deadline()
					derived, cancel := context.WithTimeout(ctx, time.Hour)
					defer cancel()
					<-derived.Done()
					testkit.Equal(t, "Err", ctx.Err(), context.DeadlineExceeded)
					return context.Cause(derived)
				})
				testkit.Equal(t, "deadline", deadline.Sub(begin), c.want)
				testkit.Equal(t, "end", time.Since(begin), c.want)
				if !errors.Is(err, client.ErrDeadline) {
					t.Errorf("Run: %v", err)
				}
			})
		})
	}
}

// A registrar keeps the service that is registered, so that a test can call its methods without a
// connection.
type registrar struct {
	service pb.ProcessLifecycleInterfaceServer
}

func (r *registrar) RegisterService(_ *grpc.ServiceDesc, service any) {
	r.service = service.(pb.ProcessLifecycleInterfaceServer)
}

// A status has a report only if it is asked for: what the drain waits for, and the goroutines of
// the program, at most 32 KiB of them. Goroutines of the protocol are left out.
func TestStatus_HasReportOnRequestOfAtMost32KiB(t *testing.T) {
	p := client.NewShutdownCoordinator("p-1")
	var r registrar
	client.Register(&r, p, nil)
	defer p.Block("the broker")()
	ask := func(with bool) string {
		st, err := r.service.GetShutdownStatus(t.Context(), &pb.ShutdownStatusRequest{WithReport: with})
		if err != nil {
			t.Fatal(err)
		}
		return st.GetReport()
	}
	stop := make(chan struct{})
	var waiting sync.WaitGroup
	start := func(depth int) {
		running := make(chan bool)
		waiting.Go(func() { waitBelow(depth, running, stop) })
		<-running
	}
	start(0)
	testkit.Equal(t, "report that is not asked for", ask(false), "")
	if got := ask(true); !strings.HasPrefix(got, "waits for the broker\n1 goroutine:\n") || !strings.Contains(got, "client_test.waitBelow\n") {
		t.Errorf("the report is %q", got)
	}
	for depth := range 100 {
		start(depth)
	}
	got := ask(true)
	close(stop)
	waiting.Wait()
	lines := strings.Split(strings.TrimSpace(got), "\n")
	if last := lines[len(lines)-1]; len(got) > 32<<10 || !strings.HasPrefix(last, "and ") || !strings.HasSuffix(last, " more") {
		t.Errorf("the report has %d bytes and ends with %q", len(got), last)
	}
}

// waitBelow calls itself the given number of times, and then waits for stop.
func waitBelow(calls int, running chan<- bool, stop <-chan struct{}) {
	if calls > 0 {
		waitBelow(calls-1, running, stop)
		return
	}
	running <- true
	<-stop
}
