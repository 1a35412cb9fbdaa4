package httpdrain

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"
)

// A tcpConn keeps all that a *net.TCPConn has, sendfile and splice among them.
type tcpConn struct {
	*net.TCPConn
	conn
}

func (c *tcpConn) Read(b []byte) (int, error) { return c.conn.read(b) }

func (c *tcpConn) Write(b []byte) (int, error) {
	counted := c.conn.writes()
	n, err := c.TCPConn.Write(b)
	c.conn.written(counted, int64(n))
	return n, err
}

func (c *tcpConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}
func (c *tcpConn) SetReadDeadline(t time.Time) error { return c.conn.setReadDeadline(t) }
func (c *tcpConn) NetConn() net.Conn                 { c.conn.show(); return c.TCPConn }

func (c *tcpConn) Close() error {
	c.conn.show() // so that whoever lifts a deadline after that hears that it is closed
	return c.conn.close()
}

func (c *tcpConn) ReadFrom(r io.Reader) (int64, error) {
	counted := c.conn.writes()
	n, err := c.TCPConn.ReadFrom(r)
	c.conn.written(counted, n)
	return n, err
}

// An anyConn keeps what net/http looks for in a connection.
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
	counted := c.conn.writes()
	n, err := c.Conn.Write(b)
	c.conn.written(counted, int64(n))
	return n, err
}

func (c *anyConn) Close() error      { return c.conn.close() }
func (c *anyConn) NetConn() net.Conn { return c.Conn }

func (c *anyConn) ReadFrom(r io.Reader) (int64, error) {
	counted := c.conn.writes()
	n, err := readFrom(c.Conn, r)
	c.conn.written(counted, n)
	return n, err
}

func (c *anyConn) CloseWrite() error {
	if cw, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return errors.ErrUnsupported
}

// A secureConn is one of a TLS implementation that is not crypto/tls: the server asks it for its state.
type secureConn struct{ anyConn }

func (c *secureConn) ConnectionState() tls.ConnectionState {
	return c.Conn.(interface{ ConnectionState() tls.ConnectionState }).ConnectionState()
}
