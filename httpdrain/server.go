package httpdrain

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"sync"

	"github.com/swansong-go/swansong/internal/drainstats"
)

// A server extends an http.Server. The first call of Serve for the http.Server creates the server
// and stores it as the http.Server's Handler, where later calls of Serve find it. Each call of
// Serve has its own listener and drain. The server sets these fields of the http.Server:
//
//	ConnContext   replaces the context by Work, with the values of the user's context and the conn
//	ConnState     calls conn.onConnState
//	Handler       finds the conn in the context, acquires a guard, wraps the ResponseWriter
//	TLSNextProto  serves HTTP/2, see http2.go
type server struct {
	*http.Server
	// The user's handler and hooks, which the server has replaced in the http.Server.
	handler     http.Handler
	connState   func(net.Conn, http.ConnState)
	connContext func(context.Context, net.Conn) context.Context

	// On a TLS listener, a function that the user has set in TLSNextProto can serve HTTP/2. It
	// reports states of the *tls.Conn itself, for which connOf finds no conn. tlsConns maps each
	// such *tls.Conn to its conn.
	tlsConns sync.Map

	mu        sync.Mutex
	listeners map[net.Listener]bool // listeners being served, except those that cannot be map keys
	serving   int                   // number of calls of Serve that still have something to serve
	ended     bool                  // the http.Server has been drained and shut down
}

var serverMu sync.Mutex

// serverOf returns the server that extends srv. The first call for srv creates it.
func serverOf(srv *http.Server) *server {
	serverMu.Lock()
	defer serverMu.Unlock()
	if sv, ok := srv.Handler.(*server); ok && sv.Server == srv {
		return sv
	}
	sv := &server{
		Server:      srv,
		handler:     srv.Handler,
		connState:   srv.ConnState,
		connContext: srv.ConnContext,
		listeners:   map[net.Listener]bool{},
	}
	srv.Handler = sv
	srv.ConnState = sv.onConnState
	srv.ConnContext = sv.onConnContext
	if base := srv.BaseContext; base != nil {
		srv.BaseContext = func(ln net.Listener) context.Context {
			if l, ok := ln.(*listener); ok {
				ln = l.Listener
			}
			return base(ln)
		}
	}
	sv.wrapNextProtos()
	return sv
}

func (sv *server) onConnState(nc net.Conn, state http.ConnState) {
	c := connOf(nc)
	if c == nil {
		if users, ok := sv.tlsConns.Load(nc); ok {
			c = users.(*conn)
		}
	}
	if sv.connState != nil {
		sv.connState(userConn(nc), state)
	}
	if c != nil {
		c.onConnState(state) // call it last, because the drain must not end before the user's hook has returned
	}
}

func (sv *server) onConnContext(ctx context.Context, nc net.Conn) context.Context {
	c := connOf(nc)
	if c != nil {
		ctx = &connContext{Context: c.work, values: ctx, conn: c}
	}
	if sv.connContext != nil {
		ctx = sv.connContext(ctx, userConn(nc))
	}
	if c != nil && ctx != nil && ctx.Value(connKey{}) != c { // net/http panics if ctx is nil
		ctx = context.WithValue(ctx, connKey{}, c)
	}
	if c != nil {
		c.base = ctx
	}
	return ctx
}

// userConn returns the connection that is passed to the user's hooks: the TLS connection, or the
// one that the listener accepted.
func userConn(nc net.Conn) net.Conn {
	if h, ok := nc.(*http2Conn); ok {
		nc = h.Conn
	}
	if _, ok := nc.(*tls.Conn); !ok {
		if c := connOf(nc); c != nil {
			return c.raw
		}
	}
	return nc
}

type connKey struct{}

// A connContext is the context of a connection: it is Work with, in addition, the conn and the
// values of the user's BaseContext.
type connContext struct {
	context.Context // the Work context of the connection's scope
	values          context.Context
	conn            *conn
}

// Value prefers the values of Work to those of the user's BaseContext. Otherwise a scope or a
// cancellation in the BaseContext would replace that of Work.
func (x *connContext) Value(key any) any {
	if key == (connKey{}) {
		return x.conn
	}
	if v := x.Context.Value(key); v != nil {
		return v
	}
	return x.values.Value(key)
}

// isComparable reports whether ln can be a map key. It examines the value, because a comparable
// type may contain an interface whose value is not comparable.
func isComparable(ln net.Listener) bool { return reflect.ValueOf(ln).Comparable() }

// begin records that a call of Serve is about to serve ln. If it returns an error, it has closed
// ln, unless another call of Serve is serving ln.
func (sv *server) begin(ln net.Listener) error {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	switch {
	case sv.ended:
		return closeListener(ln, http.ErrServerClosed)
	case isComparable(ln) && sv.listeners[ln]:
		return fmt.Errorf("httpdrain: Serve: the listener on %v is already served by another call for this http.Server; call Serve once for each listener", ln.Addr())
	}
	if isComparable(ln) {
		sv.listeners[ln] = true
	}
	sv.serving++
	return nil
}

// finish records that a call of Serve has nothing left to serve on ln, except perhaps hijacked
// connections. If stopped is true, the call ended because its scope was stopped. If then no call of
// Serve has anything left to serve, finish shuts the http.Server down.
func (sv *server) finish(ln net.Listener, stopped bool) {
	sv.mu.Lock()
	if isComparable(ln) {
		delete(sv.listeners, ln)
	}
	sv.serving--
	last := stopped && sv.serving == 0
	sv.ended = sv.ended || last
	sv.mu.Unlock()
	if last {
		sv.Shutdown(cancelled) // all connections have ended, so Shutdown closes none too early
	}
}

// Stats counts events of all servers in the program, including the HTTP/3 servers of the module
// integrations/http3drain.
type Stats struct {
	Clean, CutShort uint64 // number of drains that were completed, and number of those that Force cut short
	Cut             uint64 // number of requests and hijacked connections listed in CutErrors
	Silent          uint64 // number of connections that a drain closed in the middle of a header
	Refused         uint64 // number of requests answered with 503, after Force or by WithRetryAfter
}

// ReadStats returns the counters. They never decrease. Refused is updated at once, the others at
// the end of each drain. ReadStats may be called concurrently.
func ReadStats() Stats {
	return Stats{
		Clean:    drainstats.Clean.Load(),
		CutShort: drainstats.CutShort.Load(),
		Cut:      drainstats.Cut.Load(),
		Silent:   drainstats.Silent.Load(),
		Refused:  drainstats.Refused.Load(),
	}
}
