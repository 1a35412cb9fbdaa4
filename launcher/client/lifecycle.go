package client

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/mtls"
	"github.com/swansong-go/swansong/launcher/internal/peer"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// Environment variables that the launcher sets for a process.
const (
	EnvID       = "SWANSONG_PROCESS_ID" // the id of the process
	EnvAddress  = "SWANSONG_LIFECYCLE"  // where the process serves the protocol: the path of a unix socket, or [TCP] and host:port
	EnvLauncher = "SWANSONG_LAUNCHER"   // where the launcher accepts notifications: the path of a unix socket
	EnvCert     = "SWANSONG_TLS_CERT"   // for TCP, the PEM file of the certificate of the process
	EnvKey      = "SWANSONG_TLS_KEY"    // for TCP, the PEM file of the private key of the process
	EnvCA       = "SWANSONG_TLS_CA"     // for TCP, the PEM file of the authority that has signed the launcher's certificate

	// EnvHealth is the port on which a process without a launcher serves grpc.health.v1, and no
	// other service, for the probes of Kubernetes and Nomad. The process listens on all addresses
	// with plain TCP. The files that "launcher export" writes set this variable.
	EnvHealth = "SWANSONG_HEALTH_PORT"

	// EnvGrace is the number of seconds from SIGTERM to SIGKILL, for a process without a launcher.
	// The files that "launcher export" writes and many deployments set this variable. Package
	// graceful reads it, too.
	EnvGrace = "TERMINATION_GRACE_PERIOD_SECONDS"
)

// TCP is the prefix of a TCP address, as in "tcp:127.0.0.1:0".
const TCP = "tcp:"

const (
	pushTimeout     = time.Second            // limit of a call that notifies the launcher
	portTimeout     = 10 * time.Second       // limit of the call that reports the port, without which the launcher cannot call the process
	refreshInterval = time.Second            // time between two evaluations of the checks for grpc.health.v1 and systemd
	exitTime        = 2 * time.Second        // time that is reserved for the exit of the process, between the end of its drain and SIGKILL
	stopTimeout     = 250 * time.Millisecond // time that Close gives to pending calls
	maxMessage      = 64 << 10
	maxProbe        = 1 << 10
	maxProbes       = 16 // maximum number of concurrent health requests on one connection
)

// An Option configures [Serve]. If an option is given twice, the last one counts. A nil Option is
// ignored.
type Option interface{ apply(*config) error }

type option func(*config) error

func (f option) apply(c *config) error { return f(c) }

type config struct {
	id, address, launcher string
	healthPort            string // the value of EnvHealth; if empty, no port is opened
	tls                   mtls.Files
	signals               []os.Signal
	grace, max            time.Duration
	logger                *slog.Logger
}

// WithAddress makes Serve serve the protocol on a unix socket at this path, or on TCP if the path
// is [TCP] followed by host:port. It overrides [EnvAddress].
func WithAddress(path string) Option {
	return option(func(c *config) error { c.address = path; return nil })
}

// WithTLS names the PEM files for TCP: both the launcher and the process present a certificate that
// the authority has signed. The files are read again for each connection, so they can be replaced.
// WithTLS overrides [EnvCert], [EnvKey] and [EnvCA].
func WithTLS(cert, key, ca string) Option {
	return option(func(c *config) error { c.tls = mtls.Files{Cert: cert, Key: key, CA: ca}; return nil })
}

// WithProcessID sets the id of the process. It overrides [EnvID].
func WithProcessID(id string) Option {
	return option(func(c *config) error { c.id = id; return nil })
}

// WithSignals sets the signals that ask the process to stop. The default is SIGTERM and SIGINT.
// Without arguments, signals do not stop the process through [Serve].
func WithSignals(signals ...os.Signal) Option {
	return option(func(c *config) error { c.signals = signals; return nil })
}

// WithLimits sets the grace period and the maximum of a shutdown that a signal requests. The
// default is [DefaultGrace] and [DefaultMax]. Without a launcher, [EnvGrace] can say when SIGKILL
// follows: then the default maximum is that time, less two seconds for the exit, or less a fifth of
// that time if a fifth is shorter.
func WithLimits(grace, most time.Duration) Option {
	return option(func(c *config) error {
		if grace <= 0 || most < grace {
			return fmt.Errorf("client: WithLimits(%v, %v): both must be positive, and the first must not be longer than the second", grace, most)
		}
		c.grace, c.max = grace, most
		return nil
	})
}

// WithLogger sets the logger. Without this option nothing is logged. If the log handler panics, the
// message is lost, and the panic is printed on stderr with its stack.
func WithLogger(l *slog.Logger) Option {
	return option(func(c *config) error { c.logger = l; return nil })
}

// A Lifecycle serves the protocol for the [ReadinessCoordinator] and the [ShutdownCoordinator] of a
// process.
type Lifecycle struct {
	Shutdown  *ShutdownCoordinator
	Readiness *ReadinessCoordinator

	config       config
	health       *health.Server
	addr         net.Addr     // where the lifecycle protocol is served; nil if no address is set
	server       *grpc.Server // serves the lifecycle protocol; nil if no address is set
	served       chan struct{}
	healthServer *grpc.Server // serves the port of EnvHealth; nil if that variable is not set
	healthServed chan struct{}
	launcher     *grpc.ClientConn // nil if the process has no launcher
	signals      chan os.Signal
	closed       func()
	pushes       sync.WaitGroup
	closing      chan struct{} // closed by Close
	refreshed    chan struct{} // closed when refreshReadiness has returned
}

// Serve serves the protocol at the address in the environment, handles signals, and notifies
// systemd if NOTIFY_SOCKET is set. It returns at once; if the process chooses its TCP port, it
// returns when the launcher knows the port. Without a launcher there is no socket, except for the
// port of [EnvHealth] if that is set.
//
// Call [Lifecycle.Close] at the very end of the program.
func Serve(opts ...Option) (*Lifecycle, error) {
	c := config{
		id: os.Getenv(EnvID), address: os.Getenv(EnvAddress), launcher: os.Getenv(EnvLauncher), healthPort: os.Getenv(EnvHealth),
		tls:     mtls.Files{Cert: os.Getenv(EnvCert), Key: os.Getenv(EnvKey), CA: os.Getenv(EnvCA)},
		signals: []os.Signal{syscall.SIGTERM, os.Interrupt},
	}
	for _, opt := range opts {
		if opt == nil {
			continue
		}
		if err := opt.apply(&c); err != nil {
			return nil, err
		}
	}
	if err := c.setLimits(); err != nil {
		return nil, err
	}
	if c.logger == nil {
		c.logger = slog.New(slog.DiscardHandler)
	} else {
		c.logger = slog.New(safeHandler{c.logger.Handler()})
	}
	l := &Lifecycle{
		Shutdown:     NewShutdownCoordinator(c.id),
		Readiness:    NewReadinessCoordinator(c.id),
		config:       c,
		health:       health.NewServer(),
		served:       make(chan struct{}),
		healthServed: make(chan struct{}),
		signals:      make(chan os.Signal, 16),
		closing:      make(chan struct{}),
		refreshed:    make(chan struct{}),
	}
	l.closed = sync.OnceFunc(l.close)
	l.health.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	l.Shutdown.onRequest, l.Shutdown.onMoreTime, l.Shutdown.onEnd = l.onRequest, l.onMoreTime, l.onDrainEnd
	l.Readiness.onChange, l.Readiness.onPanic = l.onReadinessChange, l.onCheckPanic

	if c.launcher != "" {
		conn, err := grpc.NewClient("unix:"+c.launcher, grpc.WithTransportCredentials(peer.Credentials()))
		if err != nil {
			return nil, fmt.Errorf("client: cannot connect to the launcher at %s=%q: %w", EnvLauncher, c.launcher, err)
		}
		l.launcher = conn
	}
	if c.address != "" {
		if err := l.serve(); err != nil {
			if l.launcher != nil {
				l.launcher.Close()
			}
			return nil, fmt.Errorf("client: cannot serve the lifecycle protocol: %w", err)
		}
		// This process has inherited EnvHealth from the launcher. The variable names the port of
		// the launcher, so this process does not open that port.
		close(l.healthServed)
	} else {
		close(l.served)
		if err := l.serveHealth(); err != nil {
			if l.launcher != nil {
				l.launcher.Close()
			}
			return nil, fmt.Errorf("client: cannot serve grpc.health.v1 on the port %s=%q: %w", EnvHealth, c.healthPort, err)
		}
	}
	if len(c.signals) > 0 {
		signal.Notify(l.signals, c.signals...)
	}
	go l.handleSignals()
	go l.refreshReadiness()
	return l, nil
}

// setLimits sets the time limits of shutdowns by signals from EnvGrace, unless an option has set
// them. Under a launcher, EnvGrace is meant for the launcher itself, so a process of the launcher
// ignores it.
func (c *config) setLimits() error {
	if c.max > 0 {
		return nil
	}
	c.grace, c.max = DefaultGrace, DefaultMax
	seconds := os.Getenv(EnvGrace)
	if seconds == "" || c.address != "" {
		return nil
	}
	n, err := strconv.ParseInt(seconds, 10, 32)
	if err != nil || n <= 0 {
		return fmt.Errorf("client: %s=%q: must be a whole number of seconds, 1 or more", EnvGrace, seconds)
	}
	kill := time.Duration(n) * time.Second
	c.max = kill - min(exitTime, kill/5)
	c.grace = min(c.grace, c.max)
	return nil
}

// RegisterHealth registers grpc.health.v1 on a server of the program, for the probes of Kubernetes
// and for load balancing clients. The service reports SERVING while the process is Ready; it is
// updated once a second. In a shutdown it reports NOT_SERVING before anything else happens.
func (l *Lifecycle) RegisterHealth(r grpc.ServiceRegistrar) {
	healthpb.RegisterHealthServer(r, l.health)
}

// refreshReadiness evaluates the checks periodically. Without it, if no launcher asks for the
// readiness, grpc.health.v1 and systemd would not notice that a check has begun to pass or to fail.
func (l *Lifecycle) refreshReadiness() {
	defer close(l.refreshed)
	tick := time.NewTicker(refreshInterval)
	defer tick.Stop()
	for {
		select {
		case <-l.Shutdown.Requested():
			return
		case <-l.closing:
			return
		case <-tick.C:
			l.Readiness.refresh()
		}
	}
}

// handleSignals requests a shutdown at a signal. If the process has been asked to stop already, by
// a call or by an earlier signal, the signal cancels the context of the drain.
func (l *Lifecycle) handleSignals() {
	for sig := range l.signals {
		r := Request{Reason: signalName(sig), Grace: l.config.grace, Max: l.config.max}
		if _, first := l.Shutdown.Request(r); !first {
			l.config.logger.Warn("signal cuts the drain short", "signal", r.Reason)
			l.Shutdown.Cut(fmt.Errorf("%w: %s", ErrSignal, r.Reason))
		}
	}
}

func signalName(sig os.Signal) string {
	switch sig {
	case syscall.SIGTERM:
		return "SIGTERM"
	case os.Interrupt:
		return "SIGINT"
	}
	return sig.String()
}

func (l *Lifecycle) onRequest(r Request) {
	l.health.Shutdown() // close the health service first, so that load balancers stop sending requests before the process refuses any
	l.Readiness.Set(Draining, r.Reason)
	l.config.logger.Info("asked to stop", "reason", r.Reason, "grace", r.Grace, "max", r.Max)
	l.notifySystemd("STOPPING=1")
}

func (l *Lifecycle) onMoreTime(d time.Duration) {
	l.config.logger.Info("asking for more time", "additional", d)
	l.notifySystemd(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", d.Microseconds()))
}

func (l *Lifecycle) onDrainEnd(took time.Duration, message string, failure error) {
	in := &pb.ShutdownComplete{ProcessId: l.config.id, Message: message, ShutdownDurationMs: took.Milliseconds()}
	if failure != nil {
		in.DrainError = message
		l.config.logger.Error("drain failed", "took", took, "err", failure)
	} else {
		l.config.logger.Info("drained", "took", took)
	}
	l.push("NotifyShutdownComplete", func(ctx context.Context, to pb.LauncherNotificationInterfaceClient) error {
		_, err := to.NotifyShutdownComplete(ctx, in)
		return err
	})
}

// onReadinessChange notifies the launcher, grpc.health.v1 and systemd. It is called with the lock
// of the ReadinessCoordinator held.
func (l *Lifecycle) onReadinessChange(r Readiness, message string) {
	serving := healthpb.HealthCheckResponse_NOT_SERVING
	if r == Ready {
		serving = healthpb.HealthCheckResponse_SERVING
		l.notifySystemd("READY=1\nSTATUS=" + strings.ReplaceAll(message, "\n", " "))
		l.pushes.Go(func() {
			l.push("NotifyReady", func(ctx context.Context, to pb.LauncherNotificationInterfaceClient) error {
				_, err := to.NotifyReady(ctx, &pb.ReadyNotification{ProcessId: l.config.id, Message: message})
				return err
			})
		})
	}
	l.health.SetServingStatus("", serving)
	l.config.logger.Info("readiness", "state", r, "message", message)
}

// onCheckPanic logs the panic of a check. It is called with the lock of the ReadinessCoordinator
// held.
func (l *Lifecycle) onCheckPanic(name string, value any, stack []byte) {
	l.config.logger.Error("panic in a check", "check", name, "value", value, "stack", string(stack))
}

// push notifies the launcher of a change at once. Without push, the launcher would notice the
// change when it calls the process next.
func (l *Lifecycle) push(what string, call func(context.Context, pb.LauncherNotificationInterfaceClient) error) {
	if l.launcher == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), pushTimeout)
	defer cancel()
	if err := call(ctx, pb.NewLauncherNotificationInterfaceClient(l.launcher)); err != nil {
		l.config.logger.Warn("cannot notify the launcher", "call", what, "err", err)
	}
}

// Close stops serving the protocol. Call it at the very end of the program: until Close is called,
// the process answers the launcher. Pending calls have a quarter of a second to complete. Close can
// be called more than once.
func (l *Lifecycle) Close() { l.closed() }

func (l *Lifecycle) close() {
	signal.Stop(l.signals)
	close(l.signals)
	close(l.closing)
	// Until refreshReadiness has returned, it may start further goroutines that notify the
	// launcher. So wait for its return before waiting for these goroutines.
	<-l.refreshed
	l.pushes.Wait()
	if l.server != nil {
		stop(l.server)
	}
	if l.healthServer != nil {
		stop(l.healthServer)
	}
	<-l.served
	<-l.healthServed
	if l.launcher != nil {
		l.launcher.Close()
	}
}

// stop stops a server as GracefulStop does, but with a timeout. GracefulStop alone would wait for
// streams that do not end, such as Watch of grpc.health.v1.
func stop(s *grpc.Server) {
	t := time.AfterFunc(stopTimeout, s.Stop)
	defer t.Stop()
	s.GracefulStop()
}
