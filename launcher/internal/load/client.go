//go:build unix

// Package load is clients that put a service under load, and keep account of what they were told. They use sockets, and
// not net/http, which would hide what a server does to its clients: it sends requests a second time when it may.
package load

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Client sends HTTP/1.1 requests one after the other. It sends none a second time. It is for one goroutine.
type Client struct {
	Dial      func(ctx context.Context) (net.Conn, error)
	KeepAlive bool // false: a connection for each request

	conn net.Conn
	from *bufio.Reader
}

// An Answer is a response, in full.
type Answer struct {
	Status int
	Body   string
}

// patience is for broken servers.
const patience = 30 * time.Second

// Do sends a request, and returns when it is answered in full. A connection that has been kept, and that the server has
// closed since the last response, is replaced before anything is sent, as by any client; once a byte has been sent, what
// is not answered is an error.
func (c *Client) Do(ctx context.Context, method, path, body string, header ...string) (Answer, error) {
	if c.conn != nil && hasEnded(c.conn) {
		c.Close()
	}
	if c.conn == nil {
		conn, err := c.Dial(ctx)
		if err != nil {
			return Answer{}, fmt.Errorf("%s %s: not connected: %w", method, path, err)
		}
		c.conn, c.from = conn, bufio.NewReader(conn)
	}
	a, last, err := c.exchange(method, path, body, header)
	if err != nil {
		err = fmt.Errorf("%s %s: sent and not answered: %w", method, path, err)
	}
	if err != nil || last || !c.KeepAlive {
		c.Close()
	}
	return a, err
}

func (c *Client) exchange(method, path, body string, header []string) (a Answer, last bool, err error) {
	c.conn.SetDeadline(time.Now().Add(patience))
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: load\r\nContent-Length: %s\r\n", method, path, strconv.Itoa(len(body)))
	if !c.KeepAlive {
		b.WriteString("Connection: close\r\n")
	}
	for _, h := range header {
		b.WriteString(h + "\r\n")
	}
	b.WriteString("\r\n" + body)
	if _, err := io.WriteString(c.conn, b.String()); err != nil {
		return a, true, err
	}
	resp, err := http.ReadResponse(c.from, &http.Request{Method: method})
	if err != nil {
		return a, true, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return Answer{resp.StatusCode, string(text)}, resp.Close, err
}

// Close closes the connection, if there is one.
func (c *Client) Close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// hasEnded looks at a socket that nothing is expected from, without waiting.
func hasEnded(conn net.Conn) bool {
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return true
	}
	ended := true
	raw.Read(func(fd uintptr) bool {
		var one [1]byte
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		ended = err != syscall.EAGAIN && err != syscall.EINTR
		return true
	})
	return ended
}
