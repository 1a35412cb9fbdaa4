//go:build unix

// Package load contains clients that put a service under load and record its answers. The clients
// use sockets: net/http can send a request again by itself, and would thereby hide lost requests.
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

// A Client sends HTTP/1.1 requests one after the other, each only once. Only one goroutine may use
// it.
type Client struct {
	Dial      func(ctx context.Context) (net.Conn, error)
	KeepAlive bool // send all requests on one connection; otherwise each request gets a new connection

	conn   net.Conn
	reader *bufio.Reader
}

// An Answer is a complete response.
type Answer struct {
	Status int
	Body   string
}

// timeout bounds how long a client waits for the answer of a broken server.
const timeout = 30 * time.Second

// Do sends a request, and returns when the answer is complete. If the server has closed the
// connection since the last response, Do opens another one first, as every client does. Once a byte
// has been sent, a missing answer is an error.
func (c *Client) Do(ctx context.Context, method, path, body string, header ...string) (Answer, error) {
	if c.conn != nil && hasEnded(c.conn) {
		c.Close()
	}
	if c.conn == nil {
		conn, err := c.Dial(ctx)
		if err != nil {
			return Answer{}, fmt.Errorf("%s %s: not connected: %w", method, path, err)
		}
		c.conn, c.reader = conn, bufio.NewReader(conn)
	}
	a, last, err := c.exchange(method, path, body, header)
	if err != nil {
		err = fmt.Errorf("%s %s: sent, but not answered: %w", method, path, err)
	}
	if err != nil || last || !c.KeepAlive {
		c.Close()
	}
	return a, err
}

func (c *Client) exchange(method, path, body string, header []string) (a Answer, last bool, err error) {
	c.conn.SetDeadline(time.Now().Add(timeout))
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
	resp, err := http.ReadResponse(c.reader, &http.Request{Method: method})
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

// hasEnded reports, without waiting, whether the peer has closed an idle connection.
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
