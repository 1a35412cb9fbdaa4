package ctxshutdown

// Scopes: options.
//
// A child inherits tracing, the logger and the test hook of its parent scope. Options can override
// tracing and the logger. A root is traced if the environment variable CTXSHUTDOWN_TRACE is true or
// if its context carries a test hook.

import (
	"log/slog"
	"os"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/swansong-go/swansong/internal/ctxkey"
)

// An Option configures a new scope. If an option is given twice, the last one wins. A nil Option is
// ignored.
type Option interface{ apply(*options) }

// options are the settings of a new scope.
type options struct {
	name string
	settings
}

// settings are the settings that a scope inherits from its parent scope.
type settings struct {
	traced bool
	logger *slog.Logger
	hook   ctxkey.GuardHook // set only in tests with package shutdowntest
}

type option func(*options)

func (f option) apply(o *options) { f(o) }

// maxName is the maximum length of a name in bytes.
const maxName = 128

// WithName names the scope in reports, errors and logs. They show the path from the root, one name
// for each scope, as in "http/conn-42". A scope without a name, or with an empty one, is shown by
// the path of its parent.
//
// A name may contain untrusted input: characters that are not printable are escaped as in a Go
// string, and a name of more than 128 bytes is cut. Slashes are kept, so a name can be a path.
func WithName(name string) Option {
	return option(func(o *options) { o.name = cleanName(name) })
}

// cleanName cuts a name to maxName bytes and escapes characters that are not printable.
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

// WithTrace records for reports where and when every guard of the scope and its descendants is
// acquired. The environment variable CTXSHUTDOWN_TRACE=1 does the same for every new root. Tracing
// is meant for debugging: a traced guard takes some 40 times as long as an untraced one.
//
// Goroutines started by Go in a traced scope carry the pprof label "swansong" with the path of the
// scope, in addition to the labels of their context. So goroutine and CPU profiles show which scope
// a goroutine belongs to, and a [DrainError] has the stacks of the goroutines that delay the drain.
// The context that Go passes to the function carries the label, too.
func WithTrace() Option {
	return option(func(o *options) { o.traced = true })
}

// WithLogger sets the logger of the scope and its descendants. If they are traced, they log a
// warning for each guard that is released after Force or after a Wait has given up, and for each
// root that is garbage collected without having been stopped. Without WithLogger, or with a nil
// logger, nothing is logged.
func WithLogger(l *slog.Logger) Option {
	return option(func(o *options) { o.logger = l })
}

// configure applies opts and the settings that s inherits from its parent scope up.
func (s *Swansong) configure(up *Swansong, opts []Option) {
	var o options
	if up == nil {
		// Without this condition, ParseBool would allocate an error in every New.
		if v := os.Getenv("CTXSHUTDOWN_TRACE"); v != "" {
			o.traced, _ = strconv.ParseBool(v)
		}
		if p, ok := s.parent.Value(ctxkey.Hook{}).(ctxkey.GuardHook); ok {
			o.traced, o.hook = true, p
		}
	} else if up.trace != nil {
		o.settings = up.trace.settings
	}
	for _, opt := range opts {
		if opt != nil {
			opt.apply(&o)
		}
	}
	s.name = o.name
	// A scope that is not traced and has no logger gets no scopeTrace. So its guards take the fast
	// path.
	if o.traced || o.logger != nil {
		s.trace = &scopeTrace{settings: o.settings, start: time.Now()}
	}
}
