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

// net/http sends a GOAWAY on an HTTP/2 connection without a request in two cases only: when the
// connection is idle for too long, and when Shutdown is called on the server that its HTTP/2 was
// configured for. Shutdown of the user's server is not an option: it closes idle HTTP/1
// connections, which may have a request in the socket. It also sends a GOAWAY to all connections
// at once. But a GOAWAY refuses the requests that are on their way, so the best time to send it is
// when its connection is quiet.
//
// So each HTTP/2 connection uses the HTTP/2 of an additional server, which has no listener and no
// other connection. Shutdown of that server sends a GOAWAY on the connection and returns at once.
// The connection's settings and hooks are still those of the user's server, which TLSNextProto
// functions receive as an argument.
//
// If the user has configured HTTP/2 with golang.org/x/net/http2, that is used unchanged. Its
// connections get a GOAWAY with the next response only.

// Keys of TLSNextProto.
const (
	protoTLS       = "h2"
	protoPlaintext = "unencrypted_http2" // used between net/http and golang.org/x/net/http2
)

type nextProto = func(*http.Server, *tls.Conn, http.Handler)

// wrapNextProtos replaces the functions in TLSNextProto of srv, so that a conn learns that it will
// speak HTTP/2.
func wrapNextProtos(srv *http.Server) {
	protos := maps.Clone(srv.TLSNextProto)
	isUsers := protos[protoTLS] != nil
	// If TLSNextProto is set but Protocols is not, net/http keeps HTTP/2 disabled, for
	// compatibility with programs from before Go 1.24. So does httpdrain.
	if !isUsers && (protos == nil || srv.Protocols != nil) {
		config := srv.TLSConfig.Clone()
		if config != nil {
			config.NextProtos = append(slices.Clip(config.NextProtos), protoTLS)
		}
		// If TLSConfig is invalid, newHTTP2Server returns nil, and srv itself reports the error.
		if additional := newHTTP2Server(srv, config); additional != nil {
			if protos == nil {
				protos = map[string]nextProto{}
			}
			maps.Copy(protos, additional.TLSNextProto)
		}
	}
	for name, serve := range protos {
		switch {
		case name != protoTLS && name != protoPlaintext:
			protos[name] = serveUnknownProtocol(serve)
		case isUsers:
			protos[name] = serveUsersHTTP2(serve)
		default:
			protos[name] = serveHTTP2(name, serve)
		}
	}
	srv.TLSNextProto = protos
}

// serveHTTP2 returns a function for TLSNextProto that serves each connection with the HTTP/2 of an
// additional server, which it creates for the connection.
func serveHTTP2(name string, shared nextProto) nextProto {
	return func(srv *http.Server, tc *tls.Conn, h http.Handler) {
		serve := shared
		if c := connBelow(tc); c != nil {
			if additional := newHTTP2Server(srv, nil); additional != nil {
				serve = additional.TLSNextProto[name]
				c.setHTTP2(func() { additional.Shutdown(cancelled) })
			}
		}
		serve(srv, tc, h)
	}
}

func serveUsersHTTP2(serve nextProto) nextProto {
	return func(srv *http.Server, tc *tls.Conn, h http.Handler) {
		if c := connBelow(tc); c != nil {
			c.setHTTP2(nil)
		}
		serve(srv, tc, h)
	}
}

// serveUnknownProtocol returns a function for TLSNextProto. The drain waits for the connections
// that the function serves, as it does for hijacked ones.
func serveUnknownProtocol(serve nextProto) nextProto {
	return func(srv *http.Server, tc *tls.Conn, h http.Handler) {
		if c := connBelow(tc); c != nil {
			c.onConnState(http.StateActive)
		}
		serve(srv, tc, h)
	}
}

// newHTTP2Server returns an additional server that has the HTTP/2 of net/http and the settings of
// srv. It returns nil if HTTP/2 cannot be configured.
func newHTTP2Server(srv *http.Server, config *tls.Config) *http.Server {
	additional := &http.Server{
		IdleTimeout: srv.IdleTimeout, // net/http's HTTP/2 takes both timeouts from this server, not from srv
		ReadTimeout: srv.ReadTimeout,
		Protocols:   srv.Protocols,
		TLSConfig:   config,
	}
	if err := additional.Serve(closedListener{}); !errors.Is(err, net.ErrClosed) || additional.TLSNextProto[protoTLS] == nil {
		return nil
	}
	return additional
}

// A closedListener makes http.Server.Serve configure HTTP/2 and return at once.
type closedListener struct{}

func (closedListener) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (closedListener) Close() error              { return nil }
func (closedListener) Addr() net.Addr            { return nil }

// cancelled is a cancelled context. Shutdown returns at once if it is called with it.
var cancelled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// connBelow returns the conn below tc, the connection that a function of TLSNextProto was called
// with. Without TLS, tc is not encrypted but only contains the conn.
func connBelow(tc *tls.Conn) *conn {
	if u, ok := tc.NetConn().(interface{ UnencryptedNetConn() net.Conn }); ok {
		return connOf(u.UnencryptedNetConn())
	}
	return connOf(tc)
}
