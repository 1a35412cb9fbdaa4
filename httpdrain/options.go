package httpdrain

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/swansong-go/swansong/internal/panics"
)

// An Option configures a call of Serve. If an option is given twice, the last one counts. A nil
// Option is ignored. Serve returns an error for a value outside an option's limits.
type Option interface{ apply(*options) }

type options struct {
	name string

	// The drain closes a connection that has been quiet for its linger, see WithLinger. These are
	// the lower and the upper bound of the linger.
	linger    time.Duration
	maxLinger time.Duration

	keepInLameDuck bool

	// retryAfter is the time in the Retry-After of the responses with which the server refuses
	// requests that arrive after the linger. If it is 0, the server serves these requests.
	retryAfter time.Duration

	pace    float64 // how many scopes of busy connections are stopped per second; 0: all at once
	logger  *slog.Logger
	route   func(method, path string) string
	invalid error
}

type option func(*options)

func (f option) apply(o *options) { f(o) }

const (
	defaultLinger    = 100 * time.Millisecond
	defaultMaxLinger = 3 * time.Second
	maxLinger        = time.Minute
	maxRetryAfter    = 24 * time.Hour
)

// WithName sets the name of the server's scope in reports and logs. The default is "http". See
// [ctxshutdown.WithName].
func WithName(name string) Option {
	return option(func(o *options) { o.name = name })
}

// WithLinger sets the bounds of the linger, which is how long a connection must be quiet before a
// draining server closes it. Both are from 0 to 1 minute, and least is not above most. The defaults
// are 100 ms and 3 s.
//
// A client that was about to send its next request sends it within the linger, gets its response,
// and learns from it that the connection will be closed. So the linger of a connection is
//
//   - least, if nothing else is known of the connection,
//   - four times its round-trip time, if the kernel knows it (Linux),
//   - twice the usual time between two requests, counted from the latest one, if the next one
//     should come within the time most,
//
// whichever is longest, but no longer than most. On HTTP/2 the client is told to open no more
// streams: once it has confirmed that, the linger is 100 ms, or least if that is shorter.
//
// While a client sends requests on some of its connections, the others are kept as well: until the
// client has sent no request for a second, or the time most has passed since the stop. All
// connections from one IP address count as those of one client. A proxy that has lost one
// connection of its pool goes on with another, which may have been idle for long.
//
// The drain of a server with idle connections takes about as long as the longest linger. most
// should be clearly below the time until Force.
func WithLinger(least, most time.Duration) Option {
	return option(func(o *options) {
		o.check(0 <= least && least <= most && most <= maxLinger, "WithLinger(%v, %v): must be from 0 to %v, and the first not above the second", least, most, maxLinger)
		o.linger, o.maxLinger = least, most
	})
}

// KeepInLameDuck makes the server leave its connections alone in the lame duck phase of the process
// (see [graceful.WithLameDuck]).
//
// By default, the server uses the phase to send its clients to other servers while everything still
// works: a growing share of its responses says Connection: close, from none at the beginning of the
// phase to all from its middle on, and HTTP/2 clients are told to open no more streams. So few
// connections are left at the stop. A client that sends a request while the server closes the
// connection would lose the request, which is rare on a local network and frequent on a slow one.
// Envoy does the same while it drains.
func KeepInLameDuck() Option {
	return option(func(o *options) { o.keepInLameDuck = true })
}

// WithRetryAfter makes the server refuse each request that arrives later after the stop than the
// linger; see [WithLinger]. The response has the status 503, Connection: close, and a
// Retry-After of d in whole seconds, rounded up. Use this option if a load balancer sends a refused
// request to another server. d is from 1 second to 24 hours.
func WithRetryAfter(d time.Duration) Option {
	return option(func(o *options) {
		o.check(d >= time.Second && d <= maxRetryAfter, "WithRetryAfter(%v): must be from %v to %v", d, time.Second, maxRetryAfter)
		o.retryAfter = d
	})
}

// WithPacing spreads the stop over time, so that long-lived clients do not all reconnect to the
// other servers at once. Each connection gets a scope of its own, which the context of its requests
// carries. When the server's scope is stopped, the scopes of idle connections are stopped at once.
// The scopes of connections that are serving a request or are hijacked are stopped one after
// another, in random order and at irregular intervals, at most n per second. n is from 0.01 to 1e6.
//
// The drain takes at least as long as it takes to stop all these scopes. Choose the time until
// Force accordingly.
func WithPacing(n float64) Option {
	return option(func(o *options) {
		o.check(!math.IsNaN(n) && n >= 0.01 && n <= 1e6, "WithPacing(%v): must be from 0.01 to 1e6 connections a second", n)
		o.pace = n
	})
}

// WithRoute sets a function that returns the route pattern of a path, for the list of unfinished
// requests in a [CutError]. It is needed if the server's handler is not a [http.ServeMux] and does
// not set Pattern of the request that Serve passes to it. Middleware often passes a copy of the
// request on, and routers such as chi keep the pattern in the context.
//
//	// r is a *chi.Mux
//	httpdrain.WithRoute(func(method, path string) string {
//		return r.Find(chi.NewRouteContext(), method, path)
//	})
//
// route is called when the drain was cut short and, in traced scopes, for each report that lists
// the request; it may be called concurrently and while handlers are running. If it returns "" or
// panics, the path is used. For a panic, see [PanicError].
func WithRoute(route func(method, path string) string) Option {
	return option(func(o *options) { o.route = route })
}

// WithLogger sets a logger, which receives a message when the drain begins, when it ends, for each
// request that Force cuts short, and for each connection that the drain closes in the middle of a
// header. By default, or if l is nil, nothing is logged. For a panic in l's handler, see
// [PanicError].
func WithLogger(l *slog.Logger) Option {
	return option(func(o *options) { o.logger = l })
}

func (o *options) check(ok bool, format string, args ...any) {
	if !ok {
		o.invalid = errors.Join(o.invalid, fmt.Errorf("httpdrain: "+format, args...))
	}
}

func newOptions(opts []Option) (options, error) {
	o := options{name: "http", linger: defaultLinger, maxLinger: defaultMaxLinger}
	for _, opt := range opts {
		if opt != nil {
			opt.apply(&o)
		}
	}
	if o.logger == nil {
		o.logger = slog.New(slog.DiscardHandler)
	}
	return o, o.invalid
}

// A PanicError reports that a function or logger given to [Serve] as an option panicked or called
// [runtime.Goexit]. The drain continues. When it has ended, Serve returns the first PanicError,
// joined with its other errors.
//
// Panics in handlers and hooks of the http.Server are handled by net/http, as without this package.
type PanicError struct {
	Option string // name of the option: "WithRoute" or "WithLogger"
	Value  any    // the value of the panic, or an error that says that runtime.Goexit was called
	Stack  []byte // the stack of the panic, in the format of runtime/debug.Stack
}

// Error returns a message with the option and the value, without the stack.
func (e *PanicError) Error() string {
	return fmt.Sprintf("httpdrain: panic in the function passed to %s: %v", e.Option, e.Value)
}

// Unwrap returns Value if it is an error, and nil otherwise.
func (e *PanicError) Unwrap() error { return panics.Unwrap(e.Value) }

// protect calls f. If f panics or calls runtime.Goexit, and no earlier call did, protect records
// that in d.panicErr. f runs on a new goroutine, so that Goexit does not end the goroutine that
// called Serve. The caller must not hold d.mu.
func (d *drain) protect(option string, f func()) {
	done := make(chan *PanicError)
	go panics.Catch(f, func(value any, stack []byte) {
		if value == nil {
			done <- nil
		} else {
			done <- &PanicError{option, value, stack}
		}
	})
	err := <-done
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.panicErr == nil {
		d.panicErr = err
	}
}

// firstPanic returns the first panic of a function of the user, or nil.
func (d *drain) firstPanic() *PanicError {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.panicErr
}
