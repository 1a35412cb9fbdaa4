package httpdrain

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"
)

// A tcpConn has all methods of *net.TCPConn, among them those for sendfile and splice.
type tcpConn struct {
	*net.TCPConn
	conn
}

func (c *tcpConn) Read(b []byte) (int, error) { return c.conn.read(b) }

func (c *tcpConn) Write(b []byte) (int, error) {
	counted := c.conn.beginWrite()
	n, err := c.TCPConn.Write(b)
	c.conn.endWrite(counted, int64(n))
	return n, err
}

func (c *tcpConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}
func (c *tcpConn) SetReadDeadline(t time.Time) error { return c.conn.setReadDeadline(t) }
func (c *tcpConn) NetConn() net.Conn                 { c.conn.lockAndRevealDeadline(); return c.TCPConn }

func (c *tcpConn) Close() error {
	// After Close, a call that lifts a deadline must return net.ErrClosed, even if the deadline was
	// withheld from the socket.
	c.conn.lockAndRevealDeadline()
	return c.conn.close()
}

func (c *tcpConn) ReadFrom(r io.Reader) (int64, error) {
	counted := c.conn.beginWrite()
	n, err := c.TCPConn.ReadFrom(r)
	c.conn.endWrite(counted, n)
	return n, err
}

// An anyConn wraps any connection but a *net.TCPConn. It has the optional methods of a connection
// that net/http uses.
type anyConn struct {
	net.Conn
	conn
}

func (c *anyConn) Read(b []byte) (int, error)        { return c.conn.read(b) }
func (c *anyConn) SetReadDeadline(t time.Time) error { return c.conn.setReadDeadline(t) }
func (c *anyConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *anyConn) Write(b []byte) (int, error) {
	counted := c.conn.beginWrite()
	n, err := c.Conn.Write(b)
	c.conn.endWrite(counted, int64(n))
	return n, err
}

func (c *anyConn) Close() error      { return c.conn.close() }
func (c *anyConn) NetConn() net.Conn { return c.Conn }

func (c *anyConn) ReadFrom(r io.Reader) (int64, error) {
	counted := c.conn.beginWrite()
	n, err := readFrom(c.Conn, r)
	c.conn.endWrite(counted, n)
	return n, err
}

func (c *anyConn) CloseWrite() error {
	if cw, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return errors.ErrUnsupported
}

// A secureConn wraps a TLS connection that is not of crypto/tls. The server calls its method
// ConnectionState.
type secureConn struct{ anyConn }

func (c *secureConn) ConnectionState() tls.ConnectionState {
	return c.Conn.(interface{ ConnectionState() tls.ConnectionState }).ConnectionState()
}
