package httpdrain

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/internal/ctxkey"
	"github.com/swansong-go/swansong/internal/drainstats"
	"github.com/swansong-go/swansong/internal/refusal"
)

// headerTime is the time that a client of Run has to send the header of a request.
const headerTime = 10 * time.Second

// Run serves h on the TCP address addr until the process gets a signal, and returns when every
// request is answered. It is for programs that consist of one server: it combines [graceful.Run],
// [graceful.Listen], [graceful.Ready] and [Serve], with a ReadHeaderTimeout of ten seconds.
// Programs with more than that, such as probes or another server, call these functions instead.
//
// The result is that of graceful.Run, for [graceful.ExitCode]. If h is nil, it is
// [http.DefaultServeMux].
//
//	err := httpdrain.Run(context.Background(), ":8080", mux)
//	if err != nil {
//		log.Print(err)
//	}
//	os.Exit(graceful.ExitCode(err))
func Run(ctx context.Context, addr string, h http.Handler, opts ...graceful.Option) error {
	return graceful.Run(ctx, func(s *ctxshutdown.Swansong) error {
		ln, err := graceful.Listen("tcp", addr)
		if err != nil {
			return err
		}
		graceful.Ready(s)
		return Serve(s, &http.Server{Handler: h, ReadHeaderTimeout: headerTime}, ln)
	}, opts...)
}

// Serve accepts connections on ln and serves them with srv until s is stopped. It returns when the
// server has drained: all connections are closed, and the guards of all requests are released. It
// closes ln in every case. It returns
//
//   - nil if s was stopped and all requests were finished, except from clients that paused for too
//     long in the middle of a header,
//   - a [*CutError] if Work ended before that, by Force. It lists the unfinished requests and
//     unwraps to the cause,
//   - [http.ErrServerClosed] if Shutdown or Close of srv was called, or if srv has been drained
//     before,
//   - the error of ln, unchanged, if ln fails while the server is serving. Its connections are
//     drained before Serve returns. Such an error stops the server's scope, but not s,
//   - an error that says which argument is wrong.
//
// With Force, Serve joins the other errors to the CutError. Otherwise the errors that net/http
// returns too have the same text and identity here, so a program may compare them with ==.
//
// The server's scope is a child of s, one for each call. Serve holds a guard of it, so that s is
// not complete before Serve returns. Each request and each hijacked connection holds another.
//
// Several calls may serve srv on different listeners. Each has its own connections, options and
// drain. When the last of them was stopped and has nothing left to serve, Serve calls srv.Shutdown,
// which runs the functions registered with RegisterOnShutdown. These functions run later than with
// Shutdown alone, so use the scope instead. A server that has drained cannot be served again.
//
// From the first call of Serve on, srv must not be changed. Do not call srv.Shutdown or
// SetKeepAlivesEnabled(false): they close connections that may have a request in the socket.
//
// ln may be a TLS listener. As with net/http, its configuration then decides whether HTTP/2 is
// used.
func Serve(s *ctxshutdown.Swansong, srv *http.Server, ln net.Listener, opts ...Option) error {
	return serve(s, srv, ln, opts, false, srv.Serve)
}

// ServeTLS is like [Serve], but uses TLS. certFile and keyFile are as for [http.Server.ServeTLS].
// The server speaks HTTP/2 if srv is configured for that. For a TLS listener, call Serve.
func ServeTLS(s *ctxshutdown.Swansong, srv *http.Server, ln net.Listener, certFile, keyFile string, opts ...Option) error {
	return serve(s, srv, ln, opts, true, func(ln net.Listener) error { return srv.ServeTLS(ln, certFile, keyFile) })
}

// ListenAndServe calls [Serve] with a listener on the TCP address srv.Addr, or ":http" if that is
// empty.
func ListenAndServe(s *ctxshutdown.Swansong, srv *http.Server, opts ...Option) error {
	ln, err := listen(s, srv, opts, ":http")
	if err != nil {
		return err
	}
	return Serve(s, srv, ln, opts...)
}

// ListenAndServeTLS calls [ServeTLS] with a listener on the TCP address srv.Addr, or ":https" if
// that is empty.
func ListenAndServeTLS(s *ctxshutdown.Swansong, srv *http.Server, certFile, keyFile string, opts ...Option) error {
	ln, err := listen(s, srv, opts, ":https")
	if err != nil {
		return err
	}
	return ServeTLS(s, srv, ln, certFile, keyFile, opts...)
}

func listen(s *ctxshutdown.Swansong, srv *http.Server, opts []Option, addr string) (net.Listener, error) {
	if err := checkArgs(s, srv); err != nil {
		return nil, err
	}
	if _, err := newOptions(opts); err != nil {
		return nil, err
	}
	if srv.Addr != "" {
		addr = srv.Addr
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err // http.Server.ListenAndServe does not wrap the error either, and its text has the address
	}
	return ln, nil
}

func checkArgs(s *ctxshutdown.Swansong, srv *http.Server) error {
	switch {
	case s == nil:
		return errors.New("httpdrain: Serve: nil scope; create one with ctxshutdown.New")
	case srv == nil:
		return errors.New("httpdrain: Serve: nil *http.Server; pass one that has a Handler")
	case s.Err() != nil:
		return errStopped(s)
	}
	return nil
}

func errStopped(s *ctxshutdown.Swansong) error {
	return refusal.New(context.Cause(s), "httpdrain: Serve: the scope %v has already been stopped", s)
}

// closeListener closes a listener that is not served because of err. It returns err, joined with
// the error of Close if there is one.
func closeListener(ln net.Listener, err error) error {
	if closeErr := ln.Close(); closeErr != nil {
		return errors.Join(err, closeErr)
	}
	return err
}

func serve(s *ctxshutdown.Swansong, srv *http.Server, ln net.Listener, opts []Option, secure bool, run func(net.Listener) error) error {
	if ln == nil {
		return errors.New("httpdrain: Serve: nil net.Listener; open one with net.Listen, or call ListenAndServe")
	}
	o, err := newOptions(opts)
	if argErr := checkArgs(s, srv); err == nil {
		err = argErr // not joined: in a joined error that the user wraps, graceful does not find the error of a stopped scope
	} else {
		err = errors.Join(argErr, err)
	}
	if err != nil {
		return closeListener(ln, err)
	}
	sv := serverOf(srv)
	if err := sv.begin(ln); err != nil {
		return err
	}
	var once sync.Once
	finish := func(stopped bool) { once.Do(func() { sv.finish(ln, stopped) }) }
	defer finish(false)

	describer, hijackDescriber := new(ctxkey.WorkDescriber), &ctxkey.WorkDescriber{Describe: describeHijacked}
	scope, cancel := ctxshutdown.WithCancel(context.WithValue(s, ctxkey.Describer{}, describer), ctxshutdown.WithName(o.name))
	defer cancel()
	hijacks, _ := ctxshutdown.WithCancel(context.WithValue(scope.Work(), ctxkey.Describer{}, hijackDescriber), ctxshutdown.WithName("hijacked"))
	defer hijacks.Shutdown()
	d := &drain{
		options: o,
		server:  sv,
		secure:  secure,
		traced:  scope.Value(ctxkey.Tracing{}) != nil,
		scope:   scope,
		hijacks: hijacks,
		work:    scope.Work(),
		conns:   map[*conn]int{},
		quiet:   make(chan struct{}),
		empty:   make(chan struct{}),

		hijacked: map[*conn]syscall.RawConn{},
		begins:   make(chan struct{}),
		ended:    make(chan struct{}),
	}
	describer.Scope, describer.Describe, hijackDescriber.Scope = scope, d.describe, hijacks
	g, ok := scope.TryGuard()
	if !ok {
		return closeListener(ln, errStopped(s))
	}
	defer g.Release()
	ctxkey.NameShared(scope, g) // so that reports do not name g, which is as old as the server, as the oldest work
	if p, ok := graceful.FromContext(s); ok && !o.keepInLameDuck {
		var waiting sync.WaitGroup
		waiting.Go(func() { d.awaitLameDuck(p) })
		defer waiting.Wait()
	}
	defer cancel() // makes awaitLameDuck return; runs before waiting.Wait, which waits for that
	defer d.stopWatching()
	l := newListener(ln, d, scope)
	stop := context.AfterFunc(scope, l.limitAccept)
	defer stop()
	defer l.Close()

	err = run(l)
	stopped := s.Err() != nil
	if stopped && errors.Is(err, net.ErrClosed) {
		err = l.failure()
	}
	l.Close()
	scope.ShutdownCause(err)
	cut := d.run(func() { finish(stopped) })
	if panicErr := d.firstPanic(); panicErr != nil {
		err = errors.Join(err, panicErr)
	}
	switch {
	case cut == nil:
		return err
	case err == nil:
		return cut
	}
	return errors.Join(cut, err)
}

// run ends the connections and returns when they are closed. It calls onQuiet when only hijacked
// connections and event streams of the Debug page are left.
func (d *drain) run(onQuiet func()) *CutError {
	n := d.begin()
	d.log(slog.LevelInfo, "httpdrain: draining", slog.Int("connections", n), slog.Any("cause", context.Cause(d.scope)))
	var pacing sync.WaitGroup
	defer pacing.Wait()
	if d.pace > 0 {
		conns := d.snapshot()
		pacing.Go(func() { d.stopPaced(conns) })
	}
	cut := false
	select {
	case <-d.quiet:
	case <-d.work.Done():
		cut = !isClosed(d.quiet) // Work may have ended at the same time as the last request: then no request was cut short
	}
	if !cut {
		onQuiet()
		select {
		case <-d.empty:
		case <-d.work.Done():
			cut = !isClosed(d.empty)
		}
	}
	if cut {
		e := d.cutShort()
		d.reportCut(e)
		return e
	}
	for _, c := range d.snapshot() {
		c.close() // the connection serves event streams of the Debug page only, for which no drain waits
	}
	d.reportSilent()
	drainstats.Clean.Add(1)
	d.log(slog.LevelInfo, "httpdrain: drained", slog.Duration("after", time.Since(d.began)))
	return nil
}

func (d *drain) reportCut(e *CutError) {
	d.reportSilent()
	drainstats.CutShort.Add(1)
	drainstats.Cut.Add(uint64(len(e.Cut)))
	for _, c := range e.Cut {
		d.log(slog.LevelWarn, "httpdrain: request cut short", slog.String("method", c.Method), slog.String("route", c.Route),
			slog.String("remote", c.Remote), slog.Duration("age", c.Age), slog.Bool("hijacked", c.Hijacked))
	}
	d.log(slog.LevelWarn, "httpdrain: drain cut short", slog.Int("requests", len(e.Cut)),
		slog.Duration("after", time.Since(d.began)), slog.Any("cause", e.Cause))
}

// reportSilent logs and counts the connections that the drain closed in the middle of a header.
func (d *drain) reportSilent() {
	d.mu.Lock()
	silent := d.silent
	d.mu.Unlock()
	for _, c := range silent {
		d.log(slog.LevelWarn, "httpdrain: connection closed in the middle of a request header",
			slog.String("remote", c.Remote), slog.Duration("age", c.Age))
	}
	drainstats.Silent.Add(uint64(len(silent)))
}

func (d *drain) log(level slog.Level, message string, attrs ...slog.Attr) {
	d.protect("WithLogger", func() { d.logger.With("server", d.name).LogAttrs(context.Background(), level, message, attrs...) })
}
