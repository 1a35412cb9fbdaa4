package httpdrain

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/httpdrain/internal/wire"
)

// A graceful HTTP/2 server ends a connection in two steps (RFC 9113, section 6.8). First it sends a
// GOAWAY that names the largest possible stream: the client opens no new streams, and the server
// still serves the ones that are on their way. Later it sends a GOAWAY that names the last stream
// it has served.
//
// net/http sends only the second one, which refuses the requests on their way. So httpdrain serves
// each HTTP/2 connection with an additional http.Server, which has no other connection:
//
//   - The additional server reads and writes an http2Conn, which puts the first GOAWAY between the
//     frames that net/http writes. For that, the frames must not be encrypted. So the http2Conn is
//     above TLS, and for the additional server the connection is one without TLS.
//   - Shutdown of the additional server sends the second GOAWAY, on this connection alone.
//
// The settings, the hooks, the handler and the contexts are those of the user's server.
//
// If the user has configured HTTP/2 with golang.org/x/net/http2, that is used unchanged. Its
// connections get the second GOAWAY only, with the next response. From Go 1.27 on, net/http serves
// such connections without the functions of TLSNextProto, so a conn learns that it is HTTP/2 from
// its first request.

// Keys of TLSNextProto.
const (
	protoTLS       = "h2"
	protoPlaintext = "unencrypted_http2" // net/http uses this key for HTTP/2 without TLS
)

type nextProto = func(*http.Server, *tls.Conn, http.Handler)

// wrapNextProtos replaces the functions in TLSNextProto of the user's server, so that httpdrain
// serves its HTTP/2 connections.
func (sv *server) wrapNextProtos() {
	protos := maps.Clone(sv.TLSNextProto)
	userHasProtos := protos[protoTLS] != nil || protos[protoPlaintext] != nil
	for name, serve := range protos {
		if name == protoTLS || name == protoPlaintext {
			protos[name] = sv.serveUserHTTP2(serve)
		} else {
			protos[name] = serveUnknownProtocol(serve)
		}
	}
	// If TLSNextProto is set but Protocols is not, net/http keeps HTTP/2 disabled, for
	// compatibility with programs from before Go 1.24. So does httpdrain. If TLSConfig is invalid,
	// wrapNextProtos sets no functions, and the user's server itself reports the error.
	if !userHasProtos && (protos == nil || sv.Protocols != nil) && canServeHTTP2(sv.Server) {
		if protos == nil {
			protos = map[string]nextProto{}
		}
		protos[protoTLS] = func(_ *http.Server, tc *tls.Conn, h http.Handler) {
			state := tc.ConnectionState()
			if c := connFor(tc, h); c == nil {
				tc.Close()
			} else if th, ok := h.(*tlsHandler); ok {
				sv.serveHTTP2(c, th.conn, &state, th.conn)
			} else {
				sv.serveHTTP2(c, tc, &state, tc)
			}
		}
		protos[protoPlaintext] = func(_ *http.Server, tc *tls.Conn, h http.Handler) {
			if c := connFor(tc, h); c == nil {
				tc.NetConn().Close()
			} else {
				// net/http has already read the preface, so serveHTTP2 must not wait for it.
				// net/http reads each frame in two parts. Without the buffer, each part would be
				// read from the socket. A TLS connection has a buffer of its own.
				plain := unencrypted(tc)
				sv.serveHTTP2(c, plain, nil, bufio.NewReader(io.MultiReader(strings.NewReader(wire.Preface), plain)))
			}
		}
	}
	sv.TLSNextProto = protos
}

// canServeHTTP2 reports whether net/http can and may serve HTTP/2 with the settings of srv.
func canServeHTTP2(srv *http.Server) bool {
	probe := &http.Server{Protocols: srv.Protocols, TLSConfig: srv.TLSConfig.Clone()}
	if probe.TLSConfig != nil {
		probe.TLSConfig.NextProtos = append(slices.Clip(probe.TLSConfig.NextProtos), protoTLS)
	}
	err := probe.Serve(&oneConn{}) // Serve configures HTTP/2, and returns because the oneConn has no connection to accept
	return errors.Is(err, net.ErrClosed) && probe.TLSNextProto[protoTLS] != nil
}

const (
	quietBeforeGoAway = 5 * time.Millisecond   // how long a client must have sent nothing before the first GOAWAY
	defaultMaxHold    = 100 * time.Millisecond // how long the server may hold back responses to wait for a quiet client
)

// prefaceTimeout is how long a client may take to send the HTTP/2 connection preface. It is the
// timeout of net/http.
const prefaceTimeout = 10 * time.Second

// serveHTTP2 serves the HTTP/2 connection c until it is closed. plain carries its frames without
// encryption, and state describes its TLS, or is nil. serveHTTP2 reads from r, which reads from
// plain.
func (sv *server) serveHTTP2(c *conn, plain net.Conn, state *tls.ConnectionState, r io.Reader) {
	if !allowsHTTP2(sv.Server, state) {
		// RFC 9113 does not allow HTTP/2 on this TLS connection. net/http sends the same GOAWAY
		// then.
		plain.Write(wire.GoAway(0, wire.InadequateSecurity))
		plain.Close()
		return
	}
	h := newHTTP2Conn(c, plain, r)
	h.maxHold = defaultMaxHold
	if config := sv.HTTP2; config != nil && config.WriteByteTimeout > 0 {
		// net/http has set the deadline of a write, from WriteByteTimeout, before the http2Conn
		// holds the write back. So the http2Conn holds it back for at most half of that time. If
		// half of WriteByteTimeout is shorter than quietBeforeGoAway, the write is not held back at
		// all.
		h.maxHold = min(h.maxHold, config.WriteByteTimeout/2)
	}
	additional := copySettings(sv.Server)
	c.setHTTP2(h, additional)
	additional.Protocols = new(http.Protocols)
	additional.Protocols.SetUnencryptedHTTP2(true)
	additional.TLSConfig, additional.TLSNextProto = nil, nil
	// net/http uses ReadHeaderTimeout until it has read the preface of HTTP/2, and not later.
	additional.ReadHeaderTimeout = prefaceTimeout
	additional.BaseContext = nil
	additional.ConnContext = func(context.Context, net.Conn) context.Context { return c.base }
	additional.DisableGeneralOptionsHandler = true // serveGeneral answers OPTIONS *, unless the user has disabled that
	additional.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.TLS = state
		sv.serveGeneral(w, r)
	})
	additional.ConnState = func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateActive, http.StateIdle:
			sv.onConnState(h, s)
		case http.StateClosed:
			close(h.closed)
		}
	}
	additional.Serve(&oneConn{}) // Serve configures HTTP/2, and returns because the oneConn has no connection to accept
	if serve := additional.TLSNextProto[protoPlaintext]; serve != nil {
		// Before Go 1.27, requests have the server that is passed to serve as the value of
		// http.ServerContextKey, and handlers must find the user's server there.
		additional.TLSNextProto[protoPlaintext] = func(_ *http.Server, tc *tls.Conn, h http.Handler) { serve(sv.Server, tc, h) }
	}
	additional.Serve(&oneConn{conn: h}) // Serve starts a goroutine for the connection and returns
	<-h.closed
}

// serveGeneral answers OPTIONS *, as net/http does without calling the handler of the server,
// unless the user has disabled that. It calls the handler for all other requests.
func (sv *server) serveGeneral(w http.ResponseWriter, r *http.Request) {
	if !sv.DisableGeneralOptionsHandler && r.RequestURI == "*" && r.Method == http.MethodOptions {
		w.Header().Set("Content-Length", "0")
		return
	}
	sv.ServeHTTP(w, r)
}

// copySettings returns a new server with the exported fields of srv. It copies them one by one
// because a Server contains a mutex, and by reflection so that fields of later releases of Go are
// copied too.
func copySettings(srv *http.Server) *http.Server {
	additional := new(http.Server)
	from, to := reflect.ValueOf(srv).Elem(), reflect.ValueOf(additional).Elem()
	for i := range from.NumField() {
		if from.Type().Field(i).IsExported() {
			to.Field(i).Set(from.Field(i))
		}
	}
	return additional
}

// allowsHTTP2 reports whether RFC 9113, section 9.2, allows HTTP/2 on a TLS connection in this
// state, or the user's server permits it nevertheless.
func allowsHTTP2(srv *http.Server, state *tls.ConnectionState) bool {
	switch {
	case state == nil || state.Version >= tls.VersionTLS13:
		return true
	case state.Version < tls.VersionTLS12:
		return false
	case srv.HTTP2 != nil && srv.HTTP2.PermitProhibitedCipherSuites:
		return true
	}
	switch state.CipherSuite {
	case tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
		tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256:
		return true
	}
	return false
}

// A oneConn is a listener that accepts one connection, or none if conn is nil, and then is closed.
type oneConn struct{ conn net.Conn }

func (l *oneConn) Accept() (nc net.Conn, err error) {
	if nc, l.conn = l.conn, nil; nc == nil {
		err = net.ErrClosed
	}
	return nc, err
}
func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return nil }

// serveUserHTTP2 returns a function for TLSNextProto that calls the function serve, which the user
// has set there.
func (sv *server) serveUserHTTP2(serve nextProto) nextProto {
	return func(srv *http.Server, tc *tls.Conn, h http.Handler) {
		if c := connFor(tc, h); c != nil {
			c.setHTTP2(nil, nil)
			if connOf(tc) == nil {
				sv.tlsConns.Store(tc, c)
				defer sv.tlsConns.Delete(tc)
			}
		}
		serve(srv, tc, h)
	}
}

// serveUnknownProtocol returns a function for TLSNextProto. The drain waits for the connections
// that the function serves, as it does for hijacked ones.
func serveUnknownProtocol(serve nextProto) nextProto {
	return func(srv *http.Server, tc *tls.Conn, h http.Handler) {
		if c := connFor(tc, h); c != nil {
			c.onConnState(http.StateActive)
		}
		serve(srv, tc, h)
	}
}

// cancelled is a cancelled context. Shutdown of a server returns at once if it is called with this
// context.
var cancelled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// connFor returns the conn of the connection for which a function of TLSNextProto was called with
// the arguments tc and h.
func connFor(tc *tls.Conn, h http.Handler) *conn {
	if th, ok := h.(*tlsHandler); ok {
		return &th.conn.conn
	}
	if nc := unencrypted(tc); nc != nil {
		return connOf(nc)
	}
	return connOf(tc)
}

// unencrypted returns the connection that net/http has put into tc to serve HTTP/2 without TLS on
// it. It returns nil if tc is a TLS connection.
func unencrypted(tc *tls.Conn) net.Conn {
	if u, ok := tc.NetConn().(interface{ UnencryptedNetConn() net.Conn }); ok {
		return u.UnencryptedNetConn()
	}
	return nil
}

// An http2Conn is an HTTP/2 connection without encryption. It follows the frames in both
// directions, and can put a GOAWAY between those that the server writes.
type http2Conn struct {
	net.Conn
	conn    *conn
	closed  chan struct{} // closed when the server has closed the connection
	maxHold time.Duration // how long announce may hold back what the server writes
	r       io.Reader     // what Read reads from
	in      wire.FrameScanner
	reads   atomic.Uint32 // number of reads that have returned
	header  int           // number of bytes of the preface, which precedes the client's frames, read so far

	// A goroutine that writes puts an element into lock, which has room for one. So lock guards the
	// fields below like a mutex. A real mutex would stop the clock of a synctest bubble while the
	// client does not read.
	lock       chan struct{}
	out        wire.FrameScanner
	announcing bool // set by announce: its GOAWAY and its PING are written as soon as the server has written the rest of its current frame
}

func newHTTP2Conn(c *conn, plain net.Conn, r io.Reader) *http2Conn {
	return &http2Conn{Conn: plain, conn: c, closed: make(chan struct{}), r: r, lock: make(chan struct{}, 1)}
}

func (h *http2Conn) itself() *conn { return h.conn }

func (h *http2Conn) Read(b []byte) (int, error) {
	n, err := h.r.Read(b)
	h.reads.Add(1)
	frames := b[:n]
	if h.header < len(wire.Preface) {
		skip := min(n, len(wire.Preface)-h.header)
		h.header += skip
		frames = frames[skip:]
	}
	if h.in.Scan(frames) {
		h.conn.record(connEvent{kind: eventConfirm})
	}
	return n, err
}

func (h *http2Conn) Write(b []byte) (int, error) {
	h.lock <- struct{}{}
	defer func() { <-h.lock }()
	n, err := h.Conn.Write(b)
	h.out.Scan(b[:n])
	if err == nil {
		h.writeAnnouncement()
	}
	return n, err
}

// ReadFrom hides the method of Conn, which would write frames that the http2Conn does not see.
func (h *http2Conn) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{h}, r)
}

// announce tells the client to open no more streams: it makes the http2Conn write a GOAWAY that
// refuses no stream, and a PING. When the client has answered the PING, it has seen the GOAWAY.
// announce blocks while the client does not read.
//
// If a GOAWAY arrives while a request waits for its turn to be sent on the connection, the client
// of net/http fails that request, unless it has GetBody. So before the GOAWAY, announce holds back
// what the server writes, until the client is quiet: a client that waits for its responses has no
// further request to send. See TestServe_SendsFirstGoAwayWhenClientIsQuiet.
func (h *http2Conn) announce() {
	h.lock <- struct{}{}
	defer func() { <-h.lock }()
	h.awaitQuiet()
	h.announcing = true
	h.writeAnnouncement()
}

// awaitQuiet waits until the client has sent nothing for the time quietBeforeGoAway, but no longer
// than maxHold. It returns at once if the connection is closed.
func (h *http2Conn) awaitQuiet() {
	for until := time.Now().Add(h.maxHold); time.Until(until) >= quietBeforeGoAway; {
		before := h.reads.Load()
		select {
		case <-h.closed:
			return
		case <-time.After(quietBeforeGoAway):
		}
		if h.reads.Load() == before {
			return
		}
	}
}

// writeAnnouncement writes the GOAWAY and the PING of announce, if they are still to be written and
// if the server has last written a whole frame that another frame may follow. The caller holds
// h.lock.
func (h *http2Conn) writeAnnouncement() {
	if !h.announcing || !h.out.IsBetweenFrames() {
		return
	}
	h.announcing = false
	var b []byte
	if !h.out.GoneAway { // a later GOAWAY must not name a larger stream than an earlier one
		b = wire.GoAway(wire.LastStream, 0)
	}
	b = append(b, 0, 0, 8, wire.FramePing, 0, 0, 0, 0, 0)
	if _, err := h.Conn.Write(append(b, wire.PingData...)); err != nil {
		h.Conn.Close() // close the connection, because half a frame may have been written
	}
}
