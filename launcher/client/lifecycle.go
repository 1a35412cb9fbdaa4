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

// The variables of the environment by which a launcher says who the process is and where both listen.
const (
	EnvID       = "SWANSONG_PROCESS_ID"
	EnvAddress  = "SWANSONG_LIFECYCLE" // where the process serves the protocol: the path of a unix socket, or TCP and host:port
	EnvLauncher = "SWANSONG_LAUNCHER"  // where the launcher hears what is pushed: the path of a unix socket
	EnvCert     = "SWANSONG_TLS_CERT"  // for TCP, the names of PEM files: a certificate,
	EnvKey      = "SWANSONG_TLS_KEY"   // its key,
	EnvCA       = "SWANSONG_TLS_CA"    // and the authority that the launcher's certificate is of

	// EnvHealth is the port at which a process without a launcher serves grpc.health.v1, and nothing else: in plain TCP, on all
	// addresses, for the probes of Kubernetes and Nomad. Their exports set it.
	EnvHealth = "SWANSONG_HEALTH_PORT"

	// EnvGrace is how many seconds there are from SIGTERM to SIGKILL where there is no launcher. Its exports set it, and many a
	// deployment; package graceful reads it, too.
	EnvGrace = "TERMINATION_GRACE_PERIOD_SECONDS"
)

// TCP is what an address of TCP begins with, as in "tcp:127.0.0.1:0".
const TCP = "tcp:"

const (
	patience    = time.Second            // for whoever is told something
	handshake   = 10 * time.Second       // for the launcher to hear of the port, without which it cannot ask anything
	refresh     = time.Second            // the most that grpc.health.v1 and systemd lag behind a check
	toEnd       = 2 * time.Second        // for a process to end in, when its drain is over and before it is killed
	lastAnswers = 250 * time.Millisecond // for calls that are under way when everything is over
	maxMessage  = 64 << 10
	maxProbe    = 1 << 10
	maxProbes   = 16 // at once, of a connection
)

// An Option configures [Serve]. Of one that is given twice the last counts; a nil Option is ignored.
type Option interface{ apply(*config) error }

type option func(*config) error

func (f option) apply(c *config) error { return f(c) }

type config struct {
	id, address, launcher string
	probed                string // the port of EnvHealth, empty: none
	tls                   mtls.Files
	signals               []os.Signal
	grace, max            time.Duration
	logger                *slog.Logger
}

// WithAddress serves the protocol on a unix socket at this path, or at [TCP] and host:port, whatever the environment says.
func WithAddress(path string) Option {
	return option(func(c *config) error { c.address = path; return nil })
}

// WithTLS names the PEM files for TCP, whatever the environment says: both ends show a certificate of that authority. They are
// read anew for each connection, so that they can be replaced.
func WithTLS(cert, key, ca string) Option {
	return option(func(c *config) error { c.tls = mtls.Files{Cert: cert, Key: key, CA: ca}; return nil })
}

// WithProcessID is the name that the process answers to, whatever the environment says.
func WithProcessID(id string) Option {
	return option(func(c *config) error { c.id = id; return nil })
}

// WithSignals sets which signals ask the process to stop; without it, they are SIGTERM and SIGINT, and with none given no
// signal does.
func WithSignals(signals ...os.Signal) Option {
	return option(func(c *config) error { c.signals = signals; return nil })
}

// WithLimits sets the limits of a shutdown that a signal asks for, which cannot say any. Without it, they are [DefaultGrace] and
// [DefaultMax]; or, where there is no launcher and TERMINATION_GRACE_PERIOD_SECONDS says when SIGKILL comes, the second is that,
// less two seconds to end in, or less a fifth where that is less.
func WithLimits(grace, most time.Duration) Option {
	return option(func(c *config) error {
		if grace <= 0 || most < grace {
			return fmt.Errorf("client: WithLimits(%v, %v): both have to be positive, and the first no longer than the second", grace, most)
		}
		c.grace, c.max = grace, most
		return nil
	})
}

// WithLogger logs what happens. Without it nothing is logged. A message that the handler panics at is lost, and told on
// stderr, with the stack.
func WithLogger(l *slog.Logger) Option {
	return option(func(c *config) error { c.logger = l; return nil })
}

// A Lifecycle serves both coordinators of a process.
type Lifecycle struct {
	Shutdown  *ShutdownCoordinator
	Readiness *ReadinessCoordinator

	config   config
	health   *health.Server
	addr     net.Addr     // nil without an address
	server   *grpc.Server // nil without an address
	served   chan struct{}
	probes   *grpc.Server // nil where nobody probes
	probed   chan struct{}
	launcher *grpc.ClientConn // nil without a launcher
	signals  chan os.Signal
	closed   func()
	pushes   sync.WaitGroup
	over     chan struct{} // closed by Close
	mirrored chan struct{} // closed when nobody looks any more
}

// Serve serves the protocol where the environment says so, hears signals, and tells systemd where that listens. It returns
// at once; where it was told to choose a TCP port, when the launcher has heard which. Under no launcher there are signals, and no
// socket, but for the port of [EnvHealth] where that is set.
//
// Call [Lifecycle.Close] last of all.
func Serve(opts ...Option) (*Lifecycle, error) {
	c := config{
		id: os.Getenv(EnvID), address: os.Getenv(EnvAddress), launcher: os.Getenv(EnvLauncher), probed: os.Getenv(EnvHealth),
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
	if err := c.limits(); err != nil {
		return nil, err
	}
	if c.logger == nil {
		c.logger = slog.New(slog.DiscardHandler)
	} else {
		c.logger = slog.New(contained{c.logger.Handler()})
	}
	l := &Lifecycle{
		Shutdown:  NewShutdownCoordinator(c.id),
		Readiness: NewReadinessCoordinator(c.id),
		config:    c,
		health:    health.NewServer(),
		served:    make(chan struct{}),
		probed:    make(chan struct{}),
		signals:   make(chan os.Signal, 16),
		over:      make(chan struct{}),
		mirrored:  make(chan struct{}),
	}
	l.closed = sync.OnceFunc(l.close)
	l.health.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	l.Shutdown.onRequest, l.Shutdown.onMore, l.Shutdown.onEnd = l.asked, l.moreTime, l.ended
	l.Readiness.onChange, l.Readiness.onPanic = l.changed, l.checkPanicked

	if c.launcher != "" {
		conn, err := grpc.NewClient("unix:"+c.launcher, grpc.WithTransportCredentials(peer.Credentials()))
		if err != nil {
			return nil, fmt.Errorf("client: the launcher's address, %s=%q: %w", EnvLauncher, c.launcher, err)
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
		close(l.probed) // what the environment says of probes is for the launcher
	} else {
		close(l.served)
		if err := l.serveProbes(); err != nil {
			if l.launcher != nil {
				l.launcher.Close()
			}
			return nil, fmt.Errorf("client: cannot serve grpc.health.v1 at the port of %s=%q: %w", EnvHealth, c.probed, err)
		}
	}
	if len(c.signals) > 0 {
		signal.Notify(l.signals, c.signals...)
	}
	go l.hear()
	go l.mirror()
	return l, nil
}

// limits takes the limits of a signal from the environment, where no option sets them. With a launcher, what is there is the
// launcher's own.
func (c *config) limits() error {
	if c.max > 0 {
		return nil
	}
	c.grace, c.max = DefaultGrace, DefaultMax
	said := os.Getenv(EnvGrace)
	if said == "" || c.address != "" {
		return nil
	}
	n, err := strconv.ParseInt(said, 10, 32)
	if err != nil || n <= 0 {
		return fmt.Errorf("client: %s=%q: must be a whole number of seconds, 1 or more", EnvGrace, said)
	}
	kill := time.Duration(n) * time.Second
	c.max = kill - min(toEnd, kill/5)
	c.grace = min(c.grace, c.max)
	return nil
}

// RegisterHealth puts grpc.health.v1 on a server of the program, for probes of Kubernetes and for clients that balance
// load. It is SERVING while the process is Ready, which is looked at once a second, and NOT_SERVING before anything else happens in a
// shutdown.
func (l *Lifecycle) RegisterHealth(r grpc.ServiceRegistrar) {
	healthpb.RegisterHealthServer(r, l.health)
}

// mirror looks whether the process is Ready where nobody else does: without a launcher that asks, grpc.health.v1 and systemd
// would never hear that a check passes, or that it does no longer.
func (l *Lifecycle) mirror() {
	defer close(l.mirrored)
	tick := time.NewTicker(refresh)
	defer tick.Stop()
	for {
		select {
		case <-l.Shutdown.Requested():
			return
		case <-l.over:
			return
		case <-tick.C:
			l.Readiness.refresh()
		}
	}
}

// hear takes signals: the first is a request, others cut the drain short.
func (l *Lifecycle) hear() {
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

func (l *Lifecycle) asked(r Request) {
	l.health.Shutdown() // first: who balances load should hear of it before anything is refused
	l.Readiness.Set(Draining, r.Reason)
	l.config.logger.Info("asked to stop", "reason", r.Reason, "grace", r.Grace, "max", r.Max)
	systemd("STOPPING=1")
}

func (l *Lifecycle) moreTime(d time.Duration) {
	l.config.logger.Info("asking for more time", "additional", d)
	systemd(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", d.Microseconds()))
}

func (l *Lifecycle) ended(took time.Duration, message string, failure error) {
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

// changed is called under the lock of the readiness.
func (l *Lifecycle) changed(r Readiness, message string) {
	serving := healthpb.HealthCheckResponse_NOT_SERVING
	if r == Ready {
		serving = healthpb.HealthCheckResponse_SERVING
		systemd("READY=1\nSTATUS=" + strings.ReplaceAll(message, "\n", " "))
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

// checkPanicked is called under the lock of the readiness.
func (l *Lifecycle) checkPanicked(name string, value any, stack []byte) {
	l.config.logger.Error("panic in a check", "check", name, "value", value, "stack", string(stack))
}

// push tells the launcher what it would also learn by asking.
func (l *Lifecycle) push(what string, call func(context.Context, pb.LauncherNotificationInterfaceClient) error) {
	if l.launcher == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := call(ctx, pb.NewLauncherNotificationInterfaceClient(l.launcher)); err != nil {
		l.config.logger.Warn("the launcher was not told", "call", what, "err", err)
	}
}

// Close stops serving: the very last thing, since until then the launcher is answered. Calls that are under way get an
// answer, or a quarter of a second. It may be called more than once.
func (l *Lifecycle) Close() { l.closed() }

func (l *Lifecycle) close() {
	signal.Stop(l.signals)
	close(l.signals)
	close(l.over)
	<-l.mirrored // which pushes
	l.pushes.Wait()
	if l.server != nil {
		stop(l.server)
	}
	if l.probes != nil {
		stop(l.probes)
	}
	<-l.served
	<-l.probed
	if l.launcher != nil {
		l.launcher.Close()
	}
}

// stop is GracefulStop for those who have no time: that alone would wait for streams, such as a Watch of the health.
func stop(s *grpc.Server) {
	t := time.AfterFunc(lastAnswers, s.Stop)
	defer t.Stop()
	s.GracefulStop()
}
