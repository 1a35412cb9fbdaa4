package httpdrain

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"
)

// An Option configures a call of Serve. Of an option given twice the last one counts; a nil Option is ignored. A value
// outside its limits is an error of Serve that names both.
type Option interface{ apply(*options) }

type options struct {
	name       string
	linger     time.Duration
	retryAfter time.Duration // zero: requests are served after the linger too
	pace       float64       // long-lived connections released per second; zero: all at once
	logger     *slog.Logger
	route      func(method, path string) string
	bad        error
}

type option func(*options)

func (f option) apply(o *options) { f(o) }

const (
	defaultLinger = 100 * time.Millisecond
	maxLinger     = time.Minute
	maxRetryAfter = 24 * time.Hour
)

// WithName names the server's scope in reports and logs; it is "http" otherwise. See [ctxshutdown.WithName].
func WithName(name string) Option {
	return option(func(o *options) { o.name = name })
}

// WithLinger sets how long a connection may be quiet while the server drains before it is closed, from 0 to 1 minute; it
// is 100 ms otherwise. A client that is about to send its next request does so within the linger, is answered, and learns
// that the connection is at its end. So the linger should exceed the round trip to the clients, and a proxy's pause
// between taking an idle connection out of its pool and writing to it; and it is about how long a drain takes where
// connections are idle.
func WithLinger(d time.Duration) Option {
	return option(func(o *options) {
		o.check(d >= 0 && d <= maxLinger, "WithLinger(%v): must be from 0 to %v", d, maxLinger)
		o.linger = d
	})
}

// WithRetryAfter has requests that arrive later than the linger after the stop answered with 503, Connection: close and
// a Retry-After of d, in whole seconds rounded up, instead of being served. It is for load balancers that send such a
// request elsewhere. d is from 1 second to 24 hours.
func WithRetryAfter(d time.Duration) Option {
	return option(func(o *options) {
		o.check(d >= time.Second && d <= maxRetryAfter, "WithRetryAfter(%v): must be from %v to %v", d, time.Second, maxRetryAfter)
		o.retryAfter = d
	})
}

// WithPacing spreads the stop over the connections that are in the middle of a request, or hijacked, when it comes: at most
// n of them a second learn of it, in random order and at irregular intervals, so that their clients do not all connect to
// the successors at once. Done of the scope that a request's context carries is then that of its connection, and closes
// when its turn has come. All connections that are not in a request learn of the stop at once. n is from 0.01 to 1e6.
//
// The drain takes as long as it takes to go through them: give the hard tier a limit that allows for it.
func WithPacing(n float64) Option {
	return option(func(o *options) {
		o.check(!math.IsNaN(n) && n >= 0.01 && n <= 1e6, "WithPacing(%v): must be from 0.01 to 1e6 connections a second", n)
		o.pace = n
	})
}

// WithRoute sets how the list of who was cut finds the route of a request. It is for handlers that are not a
// [http.ServeMux] themselves: a router puts its pattern into the request that it is given, and behind middleware, and in
// routers that keep their own things in the context, as chi does, that is another than the server's.
//
//	httpdrain.WithRoute(func(method, path string) string { return r.Find(chi.NewRouteContext(), method, path) }) // r is a *chi.Mux
//
// route is called when the drain has been cut short, while handlers may still be running; if it returns "", or panics, the
// path is used. For a panic, see [PanicError].
func WithRoute(route func(method, path string) string) Option {
	return option(func(o *options) { o.route = route })
}

// WithLogger sets where the server tells that it begins to drain, that it has drained, whom it has cut, and who has fallen
// silent in the middle of a header. Without it, or with nil, nothing is logged. For a panic in its handler, see [PanicError].
func WithLogger(l *slog.Logger) Option {
	return option(func(o *options) { o.logger = l })
}

func (o *options) check(ok bool, format string, args ...any) {
	if !ok {
		o.bad = errors.Join(o.bad, fmt.Errorf("httpdrain: "+format, args...))
	}
}

func configure(opts []Option) (options, error) {
	o := options{name: "http", linger: defaultLinger}
	for _, opt := range opts {
		if opt != nil {
			opt.apply(&o)
		}
	}
	if o.logger == nil {
		o.logger = slog.New(slog.DiscardHandler)
	}
	return o, o.bad
}
