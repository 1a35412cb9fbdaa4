package httpdrain

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/refusal"
)

// Serve serves what connects to ln with srv until s is told to stop, and returns when it has drained: every connection has
// ended, and every request's guard is released. ln is closed in any case. It returns
//
//   - nil if s was told to stop and everybody has been served, but for who fell silent in the middle of a header,
//   - a [*CutError] if Work ended before that, by Force: it says who was cut, and unwraps to the cause,
//   - an error that matches [http.ErrServerClosed] if Shutdown or Close of srv was called, or srv has been drained before,
//   - otherwise what is wrong with the arguments or with ln. If ln fails while serving, its connections are drained first;
//     s is not told to stop, but the server's scope is.
//
// The server's scope is a child of s, and one for each call. Serve holds a guard of it, so that s is not complete before
// Serve returns; each request and each hijacked connection holds another.
//
// A server may be served on several listeners at once, by as many calls. Each has connections, options and a drain of its
// own. When the last of them has been told to stop and has served its last request, srv.Shutdown is called, which runs
// what was registered with RegisterOnShutdown: later than under Shutdown itself, so use the scope. A server that has
// drained cannot be served again.
//
// Between two Serve calls nothing may be changed in srv. Call neither srv.Shutdown nor SetKeepAlivesEnabled(false): they
// close connections that already have a request in the socket.
func Serve(s *ctxshutdown.Swansong, srv *http.Server, ln net.Listener, opts ...Option) error {
	return serve(s, srv, ln, opts, false, srv.Serve)
}

// ServeTLS is [Serve] with TLS, by the rules of [http.Server.ServeTLS] for certFile and keyFile. It speaks HTTP/2 where srv
// does. ln is the listener below TLS.
func ServeTLS(s *ctxshutdown.Swansong, srv *http.Server, ln net.Listener, certFile, keyFile string, opts ...Option) error {
	return serve(s, srv, ln, opts, true, func(ln net.Listener) error { return srv.ServeTLS(ln, certFile, keyFile) })
}

// ListenAndServe is [Serve] on the TCP address srv.Addr, or ":http" if that is empty.
func ListenAndServe(s *ctxshutdown.Swansong, srv *http.Server, opts ...Option) error {
	return listen(s, srv, opts, ":http", func(ln net.Listener) error { return Serve(s, srv, ln, opts...) })
}

// ListenAndServeTLS is [ServeTLS] on the TCP address srv.Addr, or ":https" if that is empty.
func ListenAndServeTLS(s *ctxshutdown.Swansong, srv *http.Server, certFile, keyFile string, opts ...Option) error {
	return listen(s, srv, opts, ":https", func(ln net.Listener) error { return ServeTLS(s, srv, ln, certFile, keyFile, opts...) })
}

func listen(s *ctxshutdown.Swansong, srv *http.Server, opts []Option, addr string, serve func(net.Listener) error) error {
	if err := checked(s, srv); err != nil {
		return err
	}
	if _, err := configure(opts); err != nil {
		return err
	}
	if srv.Addr != "" {
		addr = srv.Addr
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("httpdrain: cannot serve on %q: %w", addr, err)
	}
	return serve(ln)
}

// checked says what is wrong with s and srv.
func checked(s *ctxshutdown.Swansong, srv *http.Server) error {
	switch {
	case s == nil:
		return errors.New("httpdrain: Serve needs a scope and was given nil: make one with ctxshutdown.New")
	case srv == nil:
		return errors.New("httpdrain: Serve needs an http.Server and was given nil")
	case s.Err() != nil:
		return errStopped(s)
	}
	return nil
}

func errStopped(s *ctxshutdown.Swansong) error {
	return refusal.New(context.Cause(s), "httpdrain: Serve was given the scope %v, which has been told to stop already", s)
}

// closing closes a listener that is not served, and returns why, as it is where nothing else has gone wrong.
func closing(ln net.Listener, why error) error {
	if err := ln.Close(); err != nil {
		return errors.Join(why, err)
	}
	return why
}

func serve(s *ctxshutdown.Swansong, srv *http.Server, ln net.Listener, opts []Option, secure bool, run func(net.Listener) error) error {
	if ln == nil {
		return errors.New("httpdrain: Serve needs a listener and was given nil")
	}
	o, err := configure(opts)
	if wrong := checked(s, srv); err == nil {
		err = wrong // as it is, for who tells a refusal from a failure
	} else {
		err = errors.Join(wrong, err)
	}
	if err == nil && reflect.TypeOf(ln) == tlsListener {
		err = errTLSListener(ln)
	}
	if err != nil {
		return closing(ln, err)
	}
	sv := adopt(srv)
	if err := sv.begin(ln); err != nil {
		return err
	}
	var once sync.Once
	finish := func(drained bool) { once.Do(func() { sv.finish(ln, drained) }) }
	defer finish(false)

	scope, cancel := ctxshutdown.WithCancel(s, ctxshutdown.WithName(o.name))
	defer cancel()
	g, ok := scope.TryGuard()
	if !ok {
		return closing(ln, errStopped(s))
	}
	defer g.Release()
	hijacks, _ := ctxshutdown.WithCancel(scope.Work(), ctxshutdown.WithName("hijacked"))
	defer hijacks.Shutdown()
	d := &drain{
		options: o,
		server:  sv,
		secure:  secure,
		scope:   scope,
		hijacks: hijacks,
		work:    scope.Work(),
		conns:   map[*conn]int{},
		quiet:   make(chan struct{}),
		empty:   make(chan struct{}),
	}
	l := newListener(ln, d, scope)
	stop := context.AfterFunc(scope, l.hurry)
	defer stop()
	defer l.Close()

	err = run(l)
	stopped := s.Err() != nil
	switch {
	case errors.Is(err, http.ErrServerClosed):
		err = fmt.Errorf("httpdrain: Shutdown or Close of the server was called: %w", err)
	case !stopped || !errors.Is(err, net.ErrClosed):
		err = fmt.Errorf("httpdrain: serving on %v ended: %w", ln.Addr(), err)
	default:
		err = l.failure()
	}
	l.Close()
	scope.ShutdownCause(err)
	cut := d.run(func() { finish(stopped) })
	if d.failed != nil {
		err = errors.Join(err, d.failed)
	}
	switch {
	case cut == nil:
		return err
	case err == nil:
		return cut
	}
	return errors.Join(cut, err)
}

// tlsListener is the type of what tls.NewListener returns.
var tlsListener = reflect.TypeOf(tls.NewListener(nil, nil))

// run ends the connections, and returns when they have ended. It calls quiet when there is nothing left to serve.
func (d *drain) run(quiet func()) *CutError {
	n := d.begin()
	log := func(level slog.Level, message string, attrs ...slog.Attr) {
		d.protect("WithLogger", func() { d.logger.With("server", d.name).LogAttrs(context.Background(), level, message, attrs...) })
	}
	log(slog.LevelInfo, "httpdrain: draining", slog.Int("connections", n), slog.Any("cause", context.Cause(d.scope)))
	over := func(outcome *atomic.Uint64) {
		d.mu.Lock()
		silent := d.silent
		d.mu.Unlock()
		for _, c := range silent {
			log(slog.LevelWarn, "httpdrain: silent in the middle of a header", slog.String("remote", c.Remote), slog.Duration("age", c.Age))
		}
		counters.silent.Add(uint64(len(silent)))
		outcome.Add(1)
	}
	var pacing sync.WaitGroup
	defer pacing.Wait()
	if d.pace > 0 {
		conns := d.snapshot()
		pacing.Go(func() { d.paced(conns) })
	}
	for _, event := range []struct {
		over <-chan struct{}
		then func()
	}{{d.quiet, quiet}, {d.empty, func() {}}} {
		select {
		case <-event.over:
			event.then()
		case <-d.work.Done():
			if closed(event.over) { // both, and who has been served is not cut short
				event.then()
				continue
			}
			cut := d.cut()
			over(&counters.cutShort)
			counters.cut.Add(uint64(len(cut.Cut)))
			for _, c := range cut.Cut {
				log(slog.LevelWarn, "httpdrain: cut", slog.String("method", c.Method), slog.String("route", c.Route),
					slog.String("remote", c.Remote), slog.Duration("age", c.Age), slog.Bool("hijacked", c.Hijacked))
			}
			log(slog.LevelWarn, "httpdrain: drain cut short", slog.Int("requests", len(cut.Cut)),
				slog.Duration("after", time.Since(d.began)), slog.Any("cause", cut.Cause))
			return cut
		}
	}
	for _, c := range d.snapshot() {
		c.sever() // who only watched
	}
	over(&counters.clean)
	log(slog.LevelInfo, "httpdrain: drained", slog.Duration("after", time.Since(d.began)))
	return nil
}
