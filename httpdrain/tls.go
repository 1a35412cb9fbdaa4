package httpdrain

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net/http"
	"slices"
	"time"

	"github.com/swansong-go/swansong/httpdrain/internal/wire"
)

// A tlsConn wraps a connection of a TLS listener, such as those of [tls.NewListener], autocert and
// tsnet. The drain sees the bytes before encryption and after decryption.
//
// net/http serves HTTP/2 only on a *tls.Conn, and before Go 1.27 it also does the handshake only on
// a *tls.Conn. A tlsConn is none. So when net/http calls ConnectionState, the tlsConn does the
// handshake, and then serves the connection itself if the protocol is not HTTP/1. When it has done
// that, net/http finds that the connection has ended.
//
// Only the goroutine on which net/http serves the connection uses the fields.
type tlsConn struct {
	anyConn
	tls          *tls.Conn
	didHandshake bool
	didServe     bool // ConnectionState must not call serveOther: it has done so, or the handshake has failed
	hasEnded     bool // the connection has been served with another protocol than HTTP/1, or the handshake has failed
}

// HandshakeContext is called by net/http from Go 1.27 on.
func (c *tlsConn) HandshakeContext(ctx context.Context) error {
	c.didHandshake = true
	// The drain treats a handshake that has not ended like a request whose header is incomplete.
	c.conn.record(connEvent{kind: eventRead, data: []byte{wire.RecordHandshake}})
	err := c.tls.HandshakeContext(ctx)
	c.conn.record(connEvent{kind: eventWrite})
	c.conn.record(connEvent{kind: eventNew}) // from now on, count how long the client has been quiet
	if err != nil {
		c.didServe, c.hasEnded = true, true
	}
	return err
}

// ConnectionState does the handshake unless that is done, and serves the connection if its protocol
// is not HTTP/1. net/http calls ConnectionState before the first Read, and from Go 1.27 on after
// HandshakeContext.
func (c *tlsConn) ConnectionState() tls.ConnectionState {
	if !c.didHandshake {
		srv := c.drain.server.Server
		if d := handshakeTimeout(srv); d > 0 {
			c.SetDeadline(time.Now().Add(d))
		}
		if err := c.HandshakeContext(c.base); err != nil {
			c.handshakeFailed(srv, err)
		}
		c.SetDeadline(time.Time{})
	}
	state := c.tls.ConnectionState()
	if !c.didServe {
		c.didServe = true
		c.serveOther(state.NegotiatedProtocol)
	}
	return state
}

// serveOther serves the connection if protocol is not HTTP/1.
func (c *tlsConn) serveOther(protocol string) {
	switch protocol {
	case "", "http/1.0", "http/1.1":
		return
	}
	c.hasEnded = true
	sv := c.drain.server
	if serve := sv.TLSNextProto[protocol]; serve != nil {
		serve(sv.Server, c.tls, &tlsHandler{sv, &c.anyConn})
	}
}

// handshakeFailed does what net/http does when the handshake of a *tls.Conn fails.
func (c *tlsConn) handshakeFailed(srv *http.Server, err error) {
	var e tls.RecordHeaderError
	if errors.As(err, &e) && e.Conn != nil && slices.Contains([]string{"GET /", "HEAD ", "POST ", "PUT /", "OPTIO"}, string(e.RecordHeader[:])) {
		io.WriteString(e.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
		err = errors.New("client sent an HTTP request to an HTTPS server")
	}
	logf := log.Printf
	if srv.ErrorLog != nil {
		logf = srv.ErrorLog.Printf
	}
	logf("http: TLS handshake error from %v: %v", c.RemoteAddr(), err)
	c.Close()
}

// handshakeTimeout returns how long net/http lets a TLS handshake take, or 0 if it sets no limit.
func handshakeTimeout(srv *http.Server) (d time.Duration) {
	for _, t := range []time.Duration{srv.ReadHeaderTimeout, srv.ReadTimeout, srv.WriteTimeout} {
		if t > 0 && (d == 0 || t < d) {
			d = t
		}
	}
	return d
}

func (c *tlsConn) Read(b []byte) (int, error) {
	if c.hasEnded {
		return 0, io.EOF
	}
	return c.anyConn.Read(b)
}

// A tlsHandler is the handler with which a tlsConn calls a function of TLSNextProto.
type tlsHandler struct {
	server *server
	conn   *anyConn
}

// BaseContext returns the context from which golang.org/x/net/http2 derives the contexts of the
// requests. The handler that net/http passes to a function of TLSNextProto has this method, too.
func (h *tlsHandler) BaseContext() context.Context { return h.conn.base }

func (h *tlsHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.TLS == nil {
		state := h.conn.Conn.(*tls.Conn).ConnectionState()
		r.TLS = &state
	}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	if r.RemoteAddr == "" {
		r.RemoteAddr = h.conn.RemoteAddr().String()
	}
	h.server.serveGeneral(w, r)
}
