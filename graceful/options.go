package graceful

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// An Option configures [Run]. If a value is invalid, Run returns an error that names the value and
// the rule. If an option is given twice, the last one counts, except for [WithPreStop], which adds
// a hook. A nil Option is ignored.
type Option interface{ apply(*config) error }

type option func(*config) error

func (f option) apply(c *config) error { return f(c) }

type config struct {
	signals              []os.Signal
	lameDuck, soft, hard time.Duration
	maxExtension         time.Duration
	hooks                []hook
	reload               func(ctx context.Context) error // the function of WithReload; nil without that option
	scope                []ctxshutdown.Option
	logger               *slog.Logger
	output               io.Writer
}

const (
	defaultSoft = 10 * time.Second

	shortest = time.Millisecond
	longest  = 24 * time.Hour
)

// checkDuration returns an error if d is not a valid duration for an option. A positive duration
// below one millisecond usually means that the caller forgot the unit.
func checkDuration(option string, d, least time.Duration) error {
	switch {
	case d < 0:
		return fmt.Errorf("graceful: %s(%v): must not be negative", option, d)
	case d == 0 && least == 0:
		return nil
	case d == 0:
		return fmt.Errorf("graceful: %s(0s): must be at least %v; work needs time to finish", option, shortest)
	case d < shortest:
		return fmt.Errorf("graceful: %s(%v): must be at least %v; did you forget the unit, and mean %d*time.Second?", option, d, shortest, d)
	case d > longest:
		return fmt.Errorf("graceful: %s(%v): must be at most %v", option, d, longest)
	}
	return nil
}

// WithLameDuck sets how long the process accepts work after it was asked to stop, while its
// readiness is already false, so that load balancers notice. The default is 0, which skips the
// phase; 3 to 5 seconds suit Kubernetes. Valid values are 0 and 1 ms to 24 h.
func WithLameDuck(d time.Duration) Option {
	return option(func(c *config) error { c.lameDuck = d; return checkDuration("WithLameDuck", d, 0) })
}

// WithSoft sets how long work may take to finish before it is cancelled, including the pre-stop
// hooks. The default is 10 seconds. Valid values are 1 ms to 24 h. Use 24 h if the program limits
// its drain itself: then neither [Status] nor what Run prints and logs names a deadline of the
// drain.
func WithSoft(d time.Duration) Option {
	return option(func(c *config) error { c.soft = d; return checkDuration("WithSoft", d, shortest) })
}

// WithHard sets how long work may take to return after it was cancelled, before it is abandoned.
// The default is 2 seconds. Valid values are 1 ms to 24 h.
func WithHard(d time.Duration) Option {
	return option(func(c *config) error { c.hard = d; return checkDuration("WithHard", d, shortest) })
}

// WithMaxExtension sets by how much [Extend] can lengthen [Soft] in total. The default is 30
// seconds. Valid values are 0 and 1 ms to 24 h.
//
// If the environment contains the grace period but no NOTIFY_SOCKET, extensions are limited further
// so that the last phase ends at least one second before the grace period ends.
func WithMaxExtension(d time.Duration) Option {
	return option(func(c *config) error { c.maxExtension = d; return checkDuration("WithMaxExtension", d, 0) })
}

// WithSignals sets the signals that ask the process to stop. The default is SIGINT, SIGTERM, SIGHUP
// and SIGPIPE. To read the configuration again on SIGHUP, use [WithReload]. A program that handles
// SIGHUP itself leaves it out:
//
//	graceful.WithSignals(os.Interrupt, syscall.SIGTERM, syscall.SIGPIPE)
//
// A signal that the program ignores by [os/signal.Ignore] when Run is called stays ignored. So do
// SIGHUP and SIGINT if they were ignored when the process started: nohup ignores SIGHUP, and a
// shell script ignores SIGINT in background jobs. For other signals, package os/signal cannot tell
// this.
//
// SIGPIPE asks the process to stop if no process reads its standard output or standard error any
// more; writes to other closed pipes and connections only return an error. SIGPIPE never ends a
// process that is draining, unless WithSignals has no arguments. Only Linux, macOS and FreeBSD have
// SIGPIPE in the default list.
//
// Without SIGPIPE in the list, it has its usual effect until the process is asked to stop. In
// "program | tee log", ^C ends both, and a write of the program to the pipe may then come before
// Run has received the ^C. Such a write ends the process before it has drained. So leave SIGPIPE
// out only if the program handles it itself.
//
// Without arguments Run handles no signal, as is necessary in a testing/synctest bubble; the end of
// the context then asks the process to stop.
func WithSignals(signals ...os.Signal) Option {
	return option(func(c *config) error {
		c.signals = slices.Clone(signals)
		for _, s := range signals {
			switch {
			case s == nil:
				return errors.New("graceful: WithSignals: nil signal; pass a signal such as os.Interrupt")
			case slices.Contains(uncatchable, s):
				return fmt.Errorf("graceful: WithSignals(%v): a program cannot catch this signal", s)
			}
		}
		return nil
	})
}

// WithScope sets options of the root scope: [ctxshutdown.WithName], [ctxshutdown.WithTrace],
// [ctxshutdown.WithLogger].
func WithScope(opts ...ctxshutdown.Option) Option {
	return option(func(c *config) error { c.scope = opts; return nil })
}

// WithLogger sets the logger for changes of [Status], panics, reloads and the warnings of [Ready].
// If a drain takes longer than a second, Run also logs what the drain waits for. With nil, the
// default, nothing is logged.
func WithLogger(l *slog.Logger) Option {
	return option(func(c *config) error { c.logger = l; return nil })
}

// WithOutput sets where Run prints. The default is standard error; [io.Discard] disables all of it:
//
//   - on [Exit], the guards that are still held, unless they have been logged, and the stacks of
//     the program's goroutines
//   - the stack of a panic, the error of a reload, and the warnings of [Ready], unless there is a
//     logger
//   - if w is a terminal, the progress line of a drain
//   - if w is not a terminal and there is no logger, what a drain that takes longer than a second
//     waits for
//
// Several goroutines may call w.Write at the same time.
func WithOutput(w io.Writer) Option {
	return option(func(c *config) error {
		if w == nil {
			return errors.New("graceful: WithOutput: nil writer; use io.Discard to disable output")
		}
		c.output = w
		return nil
	})
}

// graceVar is the environment variable that contains the time in seconds after which the process is
// killed. Kubernetes cannot pass terminationGracePeriodSeconds to a container, nor systemd
// TimeoutStopSec, so manifests and units repeat the value in this variable.
const graceVar = "TERMINATION_GRACE_PERIOD_SECONDS"

func configure(opts []Option) (config, error) {
	c := config{
		signals: defaultSignals(),
		soft:    defaultSoft, hard: 2 * time.Second, maxExtension: 30 * time.Second,
		output: os.Stderr,
	}
	for _, opt := range opts {
		if opt != nil {
			if err := opt.apply(&c); err != nil {
				return c, err
			}
		}
	}
	c.addReloadSignal()
	return c, c.applyGracePeriod(os.Getenv(graceVar))
}

// applyGracePeriod returns an error unless the phases end before the grace period. It limits
// extensions so that the phases still end before the grace period when they are extended.
func (c *config) applyGracePeriod(seconds string) error {
	if seconds == "" {
		return nil
	}
	n, err := strconv.ParseUint(seconds, 10, 32)
	if err != nil || n == 0 {
		return fmt.Errorf("graceful: %s=%q: must be a whole number of seconds, 1 or more", graceVar, seconds)
	}
	grace, phases := time.Duration(n)*time.Second, c.lameDuck+c.soft+c.hard
	if phases >= grace { // phases that take exactly the grace period are too long, because printing and exiting take time, too
		return fmt.Errorf("graceful: the phases take longer than the grace period: lame duck %v + soft %v + hard %v = %v >= %v (%s=%s); "+
			"shorten a phase or lengthen the grace period", c.lameDuck, c.soft, c.hard, phases, grace, graceVar, seconds)
	}
	if os.Getenv(socketVar) == "" {
		c.maxExtension = min(c.maxExtension, max(0, grace-phases-margin))
	}
	return nil
}
