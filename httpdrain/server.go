package httpdrain

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"sync"
)

// A server is what an http.Server becomes when Serve is called with it for the first time: it is the http.Server's Handler,
// which is also how later calls find it. Its hooks serve any number of listeners, each with a drain of its own, and pass
// on what does not come from one.
//
//	Handler ──▶ guard, ResponseWriter ──▶ handler
//	ConnContext ──▶ hard tier with the base's values ──▶ connContext ──▶ the conn, for Handler to find
//	ConnState ──▶ connState ──▶ the conn
//	TLSNextProto ──▶ "this one speaks HTTP/2" ──▶ HTTP/2
type server struct {
	*http.Server
	handler     http.Handler
	connState   func(net.Conn, http.ConnState)
	connContext func(context.Context, net.Conn) context.Context

	mu        sync.Mutex
	listeners map[net.Listener]bool // being served, those that are comparable
	serving   int                   // calls of Serve that have something left to serve
	ended     bool                  // drained, and shut down
}

var adopting sync.Mutex

func adopt(srv *http.Server) *server {
	adopting.Lock()
	defer adopting.Unlock()
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
	adoptHTTP2(srv)
	return sv
}

func (sv *server) onConnState(nc net.Conn, state http.ConnState) {
	c := tracked(nc)
	if sv.connState != nil {
		sv.connState(outside(nc), state)
	}
	if c != nil {
		c.became(state) // last, so that the user's has returned when the drain is over
	}
}

func (sv *server) onConnContext(ctx context.Context, nc net.Conn) context.Context {
	c := tracked(nc)
	if c != nil {
		ctx = &connContext{Context: c.work, values: ctx, conn: c}
	}
	if sv.connContext != nil {
		ctx = sv.connContext(ctx, outside(nc))
	}
	if c != nil && ctx != nil && ctx.Value(connKey{}) != c { // nil: net/http has something to say about it
		ctx = context.WithValue(ctx, connKey{}, c)
	}
	return ctx
}

// outside is what the user's hooks are given for nc.
func outside(nc net.Conn) net.Conn {
	if _, ok := nc.(*tls.Conn); !ok {
		if c := tracked(nc); c != nil {
			return c.raw
		}
	}
	return nc
}

type connKey struct{}

// A connContext is on the hard tier, with the values of the user's BaseContext too.
type connContext struct {
	context.Context // Work
	values          context.Context
	conn            *conn
}

// Value asks Work first, so that scope and cancellation are its own, and not those of another context that BaseContext
// may have been derived from.
func (x *connContext) Value(key any) any {
	switch key.(type) {
	case connKey:
		return x.conn
	case uncountKey:
		return x.conn.watch
	}
	if v := x.Context.Value(key); v != nil {
		return v
	}
	return x.values.Value(key)
}

// comparable asks the value: what can be compared by its type may hold an interface around something that cannot.
func comparable(ln net.Listener) bool { return reflect.ValueOf(ln).Comparable() }

// begin notes that ln is about to be served, or says why not. It closes ln then, unless somebody else is serving it.
func (sv *server) begin(ln net.Listener) error {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	switch {
	case sv.ended:
		err := fmt.Errorf("httpdrain: Serve was given a server that has been drained, and is over for good; make a new one: %w", http.ErrServerClosed)
		return errors.Join(err, ln.Close())
	case comparable(ln) && sv.listeners[ln]:
		return fmt.Errorf("httpdrain: Serve was given the listener on %v, which another Serve of this server is serving already", ln.Addr())
	}
	if comparable(ln) {
		sv.listeners[ln] = true
	}
	sv.serving++
	return nil
}

// finish notes that there is nothing left to serve on ln, and that hijacked connections may be left.
func (sv *server) finish(ln net.Listener, stopped bool) {
	sv.mu.Lock()
	if comparable(ln) {
		delete(sv.listeners, ln)
	}
	sv.serving--
	last := stopped && sv.serving == 0
	sv.ended = sv.ended || last
	sv.mu.Unlock()
	if last {
		sv.Shutdown(over) // nobody is left whom it could hurt
	}
}
