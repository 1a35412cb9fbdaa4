package httpdrain

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
)

// The only way to have net/http send a GOAWAY on an HTTP/2 connection that has no request to answer is Shutdown of the
// server that its HTTP/2 was set up for. That cannot be the user's server while anybody speaks HTTP/1 with it: Shutdown
// closes idle connections, and drops a request that it has just read. And it would tell all HTTP/2 connections at once,
// while a GOAWAY, which refuses what is on its way, does the least harm when its connection is quiet.
//
// So each HTTP/2 connection is given the HTTP/2 of a server of its own, which serves nothing else and has no listener. Its
// Shutdown is a GOAWAY for that connection, and returns at once. The connection still belongs to the user's server, whose
// settings and hooks are the ones that count: TLSNextProto is made for being handed both.
//
// HTTP/2 that the user has set up, with golang.org/x/net/http2, is left alone. Its connections get a GOAWAY with the next
// response, and no other.

const (
	overTLS   = "h2"
	plaintext = "unencrypted_http2" // what net/http and golang.org/x/net/http2 call it between themselves
)

// adoptHTTP2 has srv tell us which connections speak HTTP/2.
func adoptHTTP2(srv *http.Server) {
	protos := maps.Clone(srv.TLSNextProto)
	theirs := protos[overTLS] != nil
	if !theirs && (protos == nil || srv.Protocols != nil) { // else it is disabled, in the way of before there were Protocols
		config := srv.TLSConfig.Clone()
		if config != nil {
			config.NextProtos = append(slices.Clip(config.NextProtos), overTLS)
		}
		// An error is that of srv.TLSConfig, and srv will say it where it matters.
		if own := setUpHTTP2(srv, config); own != nil {
			if protos == nil {
				protos = map[string]nextProto{}
			}
			maps.Copy(protos, own.TLSNextProto)
		}
	}
	for name, serve := range protos {
		switch {
		case name != overTLS && name != plaintext:
			protos[name] = taking(serve)
		case theirs:
			protos[name] = marking(serve)
		default:
			protos[name] = givingItsOwn(name, serve)
		}
	}
	srv.TLSNextProto = protos
}

type nextProto = func(*http.Server, *tls.Conn, http.Handler)

func givingItsOwn(name string, shared nextProto) nextProto {
	return func(srv *http.Server, tc *tls.Conn, h http.Handler) {
		serve := shared
		if c := trackedBelow(tc); c != nil {
			if own := setUpHTTP2(srv, nil); own != nil {
				serve = own.TLSNextProto[name]
				c.speaksHTTP2(func() { own.Shutdown(over) })
			}
		}
		serve(srv, tc, h)
	}
}

func marking(serve nextProto) nextProto {
	return func(srv *http.Server, tc *tls.Conn, h http.Handler) {
		if c := trackedBelow(tc); c != nil {
			c.speaksHTTP2(nil)
		}
		serve(srv, tc, h)
	}
}

// taking is for protocols that nobody here knows: they are waited for, like hijacked connections.
func taking(serve nextProto) nextProto {
	return func(srv *http.Server, tc *tls.Conn, h http.Handler) {
		if c := trackedBelow(tc); c != nil {
			c.became(http.StateActive)
		}
		serve(srv, tc, h)
	}
}

// setUpHTTP2 returns a server with the HTTP/2 of net/http, as srv would have it, or nil.
func setUpHTTP2(srv *http.Server, config *tls.Config) *http.Server {
	own := &http.Server{
		IdleTimeout: srv.IdleTimeout, // these two, because they are taken from here and not from srv
		ReadTimeout: srv.ReadTimeout,
		Protocols:   srv.Protocols,
		TLSConfig:   config,
	}
	if err := own.Serve(noListener{}); !errors.Is(err, net.ErrClosed) || own.TLSNextProto[overTLS] == nil {
		return nil
	}
	return own
}

// A noListener has the server that is to serve it make its preparations, and give up.
type noListener struct{}

func (noListener) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (noListener) Close() error              { return nil }
func (noListener) Addr() net.Addr            { return nil }

// over is for a Shutdown that is to do its work, and to wait for nobody.
var over = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// trackedBelow finds the conn in what functions of TLSNextProto are given. Without TLS, that is something around it.
func trackedBelow(tc *tls.Conn) *conn {
	if u, ok := tc.NetConn().(interface{ UnencryptedNetConn() net.Conn }); ok {
		return tracked(u.UnencryptedNetConn())
	}
	return tracked(tc)
}
