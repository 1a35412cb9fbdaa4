package ctxshutdown

import (
	"log/slog"
	"os"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/swansong-go/swansong/internal/probe"
)

// An Option configures a scope where it is made. Of an option given twice the last one counts; a nil Option is
// ignored.
type Option interface{ apply(*options) }

type options struct {
	name   string
	traced bool
	logger *slog.Logger
	probe  probe.Func
}

type option func(*options)

func (f option) apply(o *options) { f(o) }

// maxName is the length in bytes at which a name is cut.
const maxName = 128

// WithName names the scope in reports, errors and logs, where it is one segment of the path from the root, as in
// "http/conn-42". A scope without a name, or with an empty one, goes by its parent's path. Names may come from
// outside: what is not printable is escaped as in a Go string, so that a name never breaks a line or a terminal, and
// what is longer than 128 bytes is cut. Slashes are kept: a name may be a path itself.
func WithName(name string) Option {
	return option(func(o *options) { o.name = cleanName(name) })
}

func cleanName(name string) string {
	if len(name) > maxName {
		cut := maxName
		for cut > maxName-utf8.UTFMax && !utf8.RuneStart(name[cut]) {
			cut--
		}
		name = name[:cut] + "…"
	}
	q := strconv.Quote(name)
	return q[1 : len(q)-1]
}

// WithTrace records where and when every guard of the scope and of the scopes below was acquired, for reports. The
// environment variable CTXSHUTDOWN_TRACE=1 does so for every root made afterwards.
//
// Goroutines started there by Go carry the pprof label "swansong" with the path of their scope, along with the labels
// of their context, so that goroutine and CPU profiles tell whose they are; the context that they get carries the labels.
// When a wait ends before the scope is complete, [DrainError] says where they are.
func WithTrace() Option {
	return option(func(o *options) { o.traced = true })
}

// WithLogger sets where a traced scope, and those below, tell of guards released late (after Force, or after a Wait
// gave up) and of roots lost without a Shutdown, when the garbage collector finds them. Without it, or with nil, nothing
// is logged.
func WithLogger(l *slog.Logger) Option {
	return option(func(o *options) { o.logger = l })
}

// configure sets what s inherits and what it was given.
func (s *Swansong) configure(up *Swansong, opts []Option) {
	var o options
	if up == nil {
		o.traced, _ = strconv.ParseBool(os.Getenv("CTXSHUTDOWN_TRACE"))
		if p, ok := s.parent.Value(probe.Key{}).(probe.Func); ok {
			o.traced, o.probe = true, p
		}
	} else if up.trace != nil {
		o.traced, o.logger, o.probe = up.trace.traced, up.trace.logger, up.trace.probe
	}
	for _, opt := range opts {
		if opt != nil {
			opt.apply(&o)
		}
	}
	s.name = o.name
	if o.traced || o.logger != nil {
		s.trace = &scopeTrace{traced: o.traced, logger: o.logger, probe: o.probe, began: time.Now()}
	}
}
