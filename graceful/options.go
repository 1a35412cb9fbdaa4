package graceful

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// An Option configures [Run], which refuses a value that makes no sense with an error that names the value and the rule.
// Of an option given twice the last one counts, except for [WithPreStop], which adds; a nil Option is ignored.
type Option interface{ apply(*config) error }

type option func(*config) error

func (f option) apply(c *config) error { return f(c) }

type config struct {
	signals              []os.Signal
	lameDuck, soft, hard time.Duration
	most                 time.Duration
	hooks                []hook
	scope                []ctxshutdown.Option
	logger               *slog.Logger
	output               io.Writer
}

const (
	defaultSoft = 10 * time.Second

	shortest = time.Millisecond
	longest  = 24 * time.Hour
)

// duration refuses what is no time for a rung: in most cases, somebody has forgotten the unit.
func duration(option string, d, least time.Duration) error {
	switch {
	case d < 0:
		return fmt.Errorf("graceful: %s(%v): must not be negative", option, d)
	case d == 0 && least == 0:
		return nil
	case d == 0:
		return fmt.Errorf("graceful: %s(0s): must be at least %v; work needs time to end", option, shortest)
	case d < shortest:
		return fmt.Errorf("graceful: %s(%v): must be at least %v; is the unit missing, as in %d*time.Second?", option, d, shortest, d)
	case d > longest:
		return fmt.Errorf("graceful: %s(%v): must be at most %v", option, d, longest)
	}
	return nil
}

// WithLameDuck sets how long the process still takes on work after it was asked to stop, with readiness turned false, so
// that load balancers notice. It is 0 by default, which skips the rung; on Kubernetes, 3 to 5 seconds. It is 0, or 1 ms to
// 24 h.
func WithLameDuck(d time.Duration) Option {
	return option(func(c *config) error { c.lameDuck = d; return duration("WithLameDuck", d, 0) })
}

// WithSoft sets how long work may take to end before it is cancelled: 10 seconds by default, 1 ms to 24 h. The pre-stop
// hooks are part of it.
func WithSoft(d time.Duration) Option {
	return option(func(c *config) error { c.soft = d; return duration("WithSoft", d, shortest) })
}

// WithHard sets how long work may take to end once it is cancelled, before it is abandoned: 2 seconds by default, 1 ms to
// 24 h.
func WithHard(d time.Duration) Option {
	return option(func(c *config) error { c.hard = d; return duration("WithHard", d, shortest) })
}

// WithMaxExtension sets by how much [Extend] can lengthen [Soft] in all: 30 seconds by default. It is 0, or 1 ms to 24 h.
// Where the grace period is known from the environment and there is no NOTIFY_SOCKET to ask for more, no more is granted
// than lets the ladder end a second before it, and nothing where that leaves no second anyway.
func WithMaxExtension(d time.Duration) Option {
	return option(func(c *config) error { c.most = d; return duration("WithMaxExtension", d, 0) })
}

// WithSignals sets the signals that ask the process to stop: SIGINT and SIGTERM by default. Without any, nothing is
// wired, as it has to be in a testing/synctest bubble; the end of the context is what asks then.
func WithSignals(signals ...os.Signal) Option {
	return option(func(c *config) error {
		c.signals = slices.Clone(signals)
		for _, s := range signals {
			switch {
			case s == nil:
				return errors.New("graceful: WithSignals(nil): must name a signal, such as os.Interrupt")
			case slices.Contains(uncatchable, s):
				return fmt.Errorf("graceful: WithSignals(%v): must be a signal that a program can catch", s)
			}
		}
		return nil
	})
}

// WithScope configures the root scope, by [ctxshutdown.WithName], [ctxshutdown.WithTrace] and [ctxshutdown.WithLogger].
func WithScope(opts ...ctxshutdown.Option) Option {
	return option(func(c *config) error { c.scope = opts; return nil })
}

// WithLogger sets where every change of [Status] is told of. Without it, or with nil, nothing is logged.
func WithLogger(l *slog.Logger) Option {
	return option(func(c *config) error { c.logger = l; return nil })
}

// WithOutput sets where the line of progress goes, if that is a terminal, and where the blockers are printed on [Exit]:
// standard error by default. With [io.Discard] there is neither.
func WithOutput(w io.Writer) Option {
	return option(func(c *config) error {
		if w == nil {
			return errors.New("graceful: WithOutput(nil): must be a writer; io.Discard is for nothing at all")
		}
		c.output = w
		return nil
	})
}

// graceVar is the environment variable that has the time after which the process is killed, in seconds. Kubernetes has
// no way to hand terminationGracePeriodSeconds to a container, nor has systemd for TimeoutStopSec: manifests and units
// repeat it there.
const graceVar = "TERMINATION_GRACE_PERIOD_SECONDS"

func configure(opts []Option) (config, error) {
	c := config{
		signals: []os.Signal{os.Interrupt, syscall.SIGTERM},
		soft:    defaultSoft, hard: 2 * time.Second, most: 30 * time.Second,
		output: os.Stderr,
	}
	for _, opt := range opts {
		if opt != nil {
			if err := opt.apply(&c); err != nil {
				return c, err
			}
		}
	}
	return c, c.fit(os.Getenv(graceVar))
}

// fit compares the ladder with the grace period.
func (c *config) fit(seconds string) error {
	if seconds == "" {
		return nil
	}
	n, err := strconv.ParseUint(seconds, 10, 32)
	if err != nil || n == 0 {
		return fmt.Errorf("graceful: %s=%q: must be a whole number of seconds, 1 or more", graceVar, seconds)
	}
	grace, ladder := time.Duration(n)*time.Second, c.lameDuck+c.soft+c.hard
	if ladder >= grace { // the last to be printed, and the exit, take time too
		return fmt.Errorf("graceful: the ladder has to be shorter than the grace period: lame duck %v + soft %v + hard %v = %v >= %v (%s=%s); "+
			"shorten a rung, or have whoever stops the process wait for longer", c.lameDuck, c.soft, c.hard, ladder, grace, graceVar, seconds)
	}
	if os.Getenv(socketVar) == "" {
		c.most = min(c.most, max(0, grace-ladder-margin))
	}
	return nil
}
