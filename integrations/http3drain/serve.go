package http3drain

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/internal/ctxkey"
	"github.com/swansong-go/swansong/internal/refusal"
)

// Serve accepts QUIC connections on the socket pc and serves HTTP/3 on them as srv says, until s or
// the server's own scope is stopped. It returns when the server has drained: all connections are
// closed, and the guards of all requests are released. It closes pc in every case. It returns
//
//   - nil if the scope was stopped and all requests were finished; a request whose client paused
//     for too long in the middle of a header does not count,
//   - a [*httpdrain.CutError] if Work ended before that, by Force. It lists the unfinished requests
//     and unwraps to the cause,
//   - the error of pc, if pc fails while the server is serving. Such an error ends all connections,
//   - an error that says which argument is wrong.
//
// With Force, Serve joins the error of pc to the CutError.
//
// Each call of Serve creates a child scope of s, the server's scope, and holds a guard of that
// scope, so that s is not complete before Serve returns. Each request holds another guard, and so
// does each stream that a handler has taken over with HTTPStream.
//
// Serve reads the fields of srv once, and does not register with srv: do not call srv.Shutdown or
// srv.Close, which do nothing, or srv.SetQUICHeaders, which returns an error. Use [AltSvc] instead
// of SetQUICHeaders. If srv.Logger is set, it receives a message when the drain begins, when it
// ends, and for each request that Force cuts short. With a nil srv.QUICConfig, 0-RTT is off.
func Serve(s *ctxshutdown.Swansong, srv *http3.Server, pc net.PacketConn, opts ...Option) error {
	if pc == nil {
		return errors.New("http3drain: Serve: nil net.PacketConn; open one with net.ListenPacket, or call ListenAndServe")
	}
	defer pc.Close()
	if err := checkArgs(s, srv); err != nil {
		return err
	}
	d, cancel := newDrain(s, srv, newOptions(opts))
	defer cancel()
	g, ok := d.scope.TryGuard()
	if !ok {
		return errStopped(s)
	}
	defer g.Release()
	// The guard g is as old as the server. This call keeps reports from naming it as the oldest
	// work.
	ctxkey.NameShared(d.scope, g)

	config := &quic.Config{}
	if srv.QUICConfig != nil {
		config = srv.QUICConfig.Clone()
	}
	config.EnableDatagrams = config.EnableDatagrams || srv.EnableDatagrams
	transport := &quic.Transport{Conn: pc, ConnContext: d.beginHandshake}
	ln, err := transport.ListenEarly(http3.ConfigureTLSConfig(srv.TLSConfig), config)
	if err != nil {
		return err
	}
	defer transport.Close()
	if p, ok := graceful.FromContext(s); ok && !d.keepInLameDuck {
		var waiting sync.WaitGroup
		waiting.Go(func() { d.awaitLameDuck(p) })
		defer waiting.Wait()
	}
	// This deferred call runs before waiting.Wait. It stops the scope, which ends awaitLameDuck.
	defer cancel()

	accepting := make(chan error, 1)
	go func() { accepting <- d.accept(ln) }()
	var failure error
	select {
	case <-d.scope.Done(): // s has been stopped, or a handler has stopped the scope of its request
	case failure = <-accepting:
		d.scope.ShutdownCause(failure)
		accepting <- failure
	}
	cut := d.run()
	ln.Close()
	<-accepting // ignore the error: after a drain it only says that the listener was closed
	if cut != nil && failure != nil {
		return errors.Join(cut, failure)
	} else if cut != nil {
		return cut
	}
	return failure
}

// ListenAndServe calls [Serve] with a socket on the UDP address srv.Addr, or ":https" if that is
// empty.
func ListenAndServe(s *ctxshutdown.Swansong, srv *http3.Server, opts ...Option) error {
	if err := checkArgs(s, srv); err != nil {
		return err
	}
	addr := srv.Addr
	if addr == "" {
		addr = ":https"
	}
	pc, err := net.ListenPacket("udp", addr)
	if err != nil {
		return err // the text of err contains the address
	}
	return Serve(s, srv, pc, opts...)
}

func checkArgs(s *ctxshutdown.Swansong, srv *http3.Server) error {
	switch {
	case s == nil:
		return errors.New("http3drain: Serve: nil scope; create one with ctxshutdown.New")
	case srv == nil:
		return errors.New("http3drain: Serve: nil *http3.Server; pass one that has a TLSConfig")
	case srv.TLSConfig == nil:
		return errors.New("http3drain: Serve: the http3.Server has no TLSConfig; HTTP/3 needs a certificate")
	case s.Err() != nil:
		return errStopped(s)
	}
	return checkInternals()
}

func errStopped(s *ctxshutdown.Swansong) error {
	return refusal.New(context.Cause(s), "http3drain: Serve: the scope %v has already been stopped", s)
}

func newDrain(s *ctxshutdown.Swansong, srv *http3.Server, o options) (d *drain, cancel func()) {
	describer, hijackDescriber := new(ctxkey.WorkDescriber), &ctxkey.WorkDescriber{Describe: describeHijacked}
	scope, cancelScope := ctxshutdown.WithCancel(context.WithValue(s, ctxkey.Describer{}, describer), ctxshutdown.WithName(o.name))
	hijacks, _ := ctxshutdown.WithCancel(context.WithValue(scope.Work(), ctxkey.Describer{}, hijackDescriber), ctxshutdown.WithName("hijacked"))
	d = &drain{
		options: o,
		server:  srv,
		scope:   scope,
		hijacks: hijacks,
		work:    scope.Work(),
		conns:   map[*conn]struct{}{},
		changed: make(chan struct{}, 1),
	}
	describer.Scope, describer.Describe, hijackDescriber.Scope = scope, d.describe, hijacks
	return d, func() { cancelScope(); hijacks.Shutdown() }
}

// accept serves the connections that ln accepts, until ln is closed or fails.
func (d *drain) accept(ln *quic.EarlyListener) error {
	for {
		qc, err := ln.Accept(context.Background())
		if err != nil {
			return err
		}
		c := d.add(qc)
		// Add the connection first, and then end the handshake. So the drain always has something
		// to wait for: at first the handshake, and then the connection.
		qc.Context().Value(handshakeKey{}).(func())()
		go c.serve()
	}
}

// run ends the connections and returns when they are closed.
func (d *drain) run() *httpdrain.CutError {
	n := d.begin()
	d.log(slog.LevelInfo, "http3drain: draining", slog.Int("connections", n), slog.Any("cause", context.Cause(d.scope)))
	limit := time.NewTimer(handshakeLimit)
	defer limit.Stop()
	for late := false; !d.isEmpty(late); {
		select {
		case <-d.changed:
		case <-limit.C:
			late = true
		case <-d.work.Done():
			late = true // Force does not wait for handshakes
			if d.isEmpty(late) {
				continue
			}
			return d.cutShort()
		}
	}
	d.reportEnd()
	return nil
}
