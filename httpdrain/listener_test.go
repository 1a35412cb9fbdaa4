package httpdrain

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// On a busy machine, the goroutine that accepts may not run for seconds. The drain waits that long
// before it resets the clients in the accept queue, unless the listener has an Accept of its own,
// which may wait for something else: for one connection to end before it accepts another, say.
func TestListener_ClosesIfAcceptDoesNotReturnAtDeadline(t *testing.T) {
	withTLS := func(ln net.Listener) net.Listener { return tls.NewListener(ln, &tls.Config{}) }
	limiting := func(ln net.Listener) net.Listener { return struct{ *net.TCPListener }{ln.(*net.TCPListener)} }
	for _, test := range []struct {
		name    string
		network string
		wrap    func(net.Listener) net.Listener
		want    time.Duration
	}{
		{"TCP", "tcp", func(ln net.Listener) net.Listener { return ln }, 10 * time.Second},
		{"unix", "unix", func(ln net.Listener) net.Listener { return ln }, 10 * time.Second},
		{"TLS", "tcp", withTLS, 10 * time.Second},
		{"embeds a TCP listener", "tcp", limiting, time.Second},
		{"TLS around one that embeds a TCP listener", "tcp", func(ln net.Listener) net.Listener { return withTLS(limiting(ln)) }, time.Second},
		{"without SetDeadline", "tcp", func(ln net.Listener) net.Listener { return struct{ net.Listener }{ln} }, 2 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			addr := "127.0.0.1:0"
			if test.network == "unix" {
				dir, err := os.MkdirTemp("", "") // the path of t.TempDir may be too long for a socket
				if err != nil {
					t.Fatal(err)
				}
				defer os.RemoveAll(dir)
				addr = filepath.Join(dir, "socket")
			}
			ln, err := net.Listen(test.network, addr)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				l := newListener(test.wrap(ln), nil, context.Background())
				defer l.Close()
				l.setAccepting(true)
				l.limitAccept()
				time.Sleep(test.want - time.Nanosecond)
				if synctest.Wait(); l.isClosed() {
					t.Errorf("the listener was closed before %v", test.want)
				}
				time.Sleep(time.Nanosecond)
				if synctest.Wait(); !l.isClosed() {
					t.Errorf("the listener was not closed after %v", test.want)
				}
			})
		})
	}
}
