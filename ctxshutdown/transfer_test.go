package ctxshutdown_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// connections returns the two ends of a new connection.
func connections(t testing.TB, network string) (client, server net.Conn) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dialed := make(chan error, 1)
	go func() {
		var err error
		client, err = net.Dial(network, ln.Addr().String())
		dialed <- err
	}()
	server, err = ln.Accept()
	if err := errors.Join(err, <-dialed); err != nil {
		t.Fatal(err)
	}
	return client, server
}

// A stream is random bytes, the same ones for the same seed.
func stream(seed uint64) io.Reader {
	return rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24)})
}

// A comparer is a Writer that takes the bytes of a stream and no others.
type comparer struct {
	want io.Reader
	n    int64
	buf  []byte
}

func (c *comparer) Write(p []byte) (int, error) {
	if len(c.buf) < len(p) {
		c.buf = make([]byte, len(p))
	}
	want := c.buf[:len(p)]
	if _, err := io.ReadFull(c.want, want); err != nil {
		return 0, err
	}
	for i := range p {
		if p[i] != want[i] {
			return i, fmt.Errorf("byte %d is not what was sent", c.n+int64(i))
		}
	}
	c.n += int64(len(p))
	return len(p), nil
}

// A transfer that is stopped again and again, and taken up each time by the next owner, brings every byte, in order.
func TestTransfer_LosesNoByte(t *testing.T) {
	const stops = 1000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	helper := []ctxshutdown.InterruptOption{ctxshutdown.Detached()}
	for _, test := range []struct {
		name   string
		size   int64
		wakes  bool // a stop ends the copy at once, also when nothing comes
		source func(t *testing.T) (w io.WriteCloser, r io.Reader)
		dest   func(t *testing.T, to io.Writer) (w io.Writer, wait func() error)
		copy   func(s *ctxshutdown.Swansong, w io.Writer, r *ctxshutdown.Reader) error
		opts   []ctxshutdown.InterruptOption
	}{
		{"TCP, by Read", 64 << 20, true, tcpSource, direct, byReads, nil},
		{"TCP to TCP, by io.Copy", 64 << 20, true, tcpSource, throughTCP, byCopy, nil},
		{"TCP to TCP, both ends wrapped", 16 << 20, true, tcpSource, throughTCP, bothWrapped, nil},
		{"pipe, by Read", 64 << 20, true, pipeSource, direct, byReads, nil},
		{"pipe to TCP, by io.Copy", 64 << 20, true, pipeSource, throughTCP, byCopy, nil},
		{"pipe, both ends wrapped", 16 << 20, true, pipeSource, direct, bothWrapped, nil},
		{"net.Pipe, by io.Copy", 16 << 20, true, netPipeSource, direct, byCopy, nil},
		{"TLS, by Read", 16 << 20, true, tlsSource, direct, byReads, nil},
		{"TLS, by io.Copy", 16 << 20, true, tlsSource, throughTCP, byCopy, nil},
		{"not to be woken, by Read", 16 << 20, false, dullSource, direct, byReads, nil},
		{"not to be woken, both ends wrapped", 16 << 20, false, dullSource, direct, bothWrapped, nil},
		{"by helper, by Read", 16 << 20, true, dullSource, direct, byReads, helper},
		{"by helper, by io.Copy", 16 << 20, true, dullSource, throughTCP, byCopy, helper},
	} {
		t.Run(test.name, func(t *testing.T) {
			size := test.size
			if testing.Short() {
				size /= 16
			}
			w, src := test.source(t)
			got := &comparer{want: stream(seed)}
			dst, wait := test.dest(t, got)

			// Whoever sends stops whoever receives: in the middle of things, as far as the buffers on the way are full,
			// or while it waits for more.
			root := ctxshutdown.New(context.Background())
			defer root.Shutdown()
			var stop atomic.Pointer[context.CancelFunc]
			begin := func() *ctxshutdown.Swansong {
				s, cancel := ctxshutdown.WithCancel(root)
				stop.Store(&cancel)
				return s
			}
			s := begin()
			next := make(chan struct{})
			sent := make(chan error, 1)
			go func() {
				random, bytes, left := rand.New(rand.NewPCG(seed, 1)), stream(seed), size
				for range stops {
					n := min(left, random.Int64N(2*size/stops))
					if _, err := io.CopyN(w, bytes, n); err != nil {
						sent <- err
						return
					}
					left -= n
					for range random.IntN(20) {
						runtime.Gosched()
					}
					(*stop.Load())()
					if test.wakes {
						<-next
					}
				}
				_, err := io.CopyN(w, bytes, left)
				sent <- errors.Join(err, w.Close())
			}()

			stopped := 0
			for {
				r := ctxshutdown.NewReader(s, src, test.opts...)
				if err := test.copy(s, dst, r); err != nil {
					t.Fatalf("owner %d: %v", stopped, err)
				}
				if !r.Stopped() {
					break
				}
				stopped++
				src = r.Rest()
				s = begin()
				if test.wakes {
					next <- struct{}{}
				}
			}
			if err := errors.Join(wait(), <-sent); err != nil {
				t.Fatal(err)
			}
			if got.n != size || test.wakes && stopped != stops || stopped == 0 {
				t.Errorf("%d of %d bytes came, after %d of %d stops", got.n, size, stopped, stops)
			}
		})
	}
}

func byReads(_ *ctxshutdown.Swansong, w io.Writer, r *ctxshutdown.Reader) error {
	_, err := io.Copy(w, struct{ io.Reader }{r})
	return err
}

func byCopy(_ *ctxshutdown.Swansong, w io.Writer, r *ctxshutdown.Reader) error {
	_, err := io.Copy(w, r)
	return err
}

// bothWrapped stops the writing with the reading, which is not what one should do, and does no harm.
func bothWrapped(s *ctxshutdown.Swansong, w io.Writer, r *ctxshutdown.Reader) error {
	_, err := io.Copy(ctxshutdown.NewWriter(s, w), r)
	return err
}

func tcpSource(t *testing.T) (io.WriteCloser, io.Reader) {
	a, b := connections(t, "tcp")
	t.Cleanup(func() { b.Close() })
	return a, b
}

func netPipeSource(*testing.T) (io.WriteCloser, io.Reader) { return net.Pipe() }

func pipeSource(t *testing.T) (io.WriteCloser, io.Reader) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return w, r
}

func dullSource(t *testing.T) (io.WriteCloser, io.Reader) {
	w, r := pipeSource(t)
	return w, struct{ io.Reader }{r}
}

func tlsSource(t *testing.T) (io.WriteCloser, io.Reader) {
	server := httptest.NewTLSServer(nil) // for its certificate
	defer server.Close()
	trust := server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	trust.ServerName = "example.com"
	a, b := connections(t, "tcp")
	t.Cleanup(func() { b.Close() })
	return tls.Server(a, &tls.Config{Certificates: server.TLS.Certificates}), tls.Client(b, trust)
}

func direct(_ *testing.T, to io.Writer) (w io.Writer, wait func() error) {
	return to, func() error { return nil }
}

func throughTCP(t *testing.T, to io.Writer) (w io.Writer, wait func() error) {
	a, b := connections(t, "tcp")
	t.Cleanup(func() { a.Close() })
	arrived := make(chan error, 1)
	go func() {
		defer b.Close()
		_, err := io.Copy(to, b)
		arrived <- err
	}()
	return a, func() error {
		a.Close()
		return <-arrived
	}
}
