package ctxshutdown_test

import (
	"bufio"
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
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
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

// stream returns a source of random bytes, which are the same for the same seed.
func stream(seed uint64) io.Reader {
	return rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24)})
}

// comparer is an io.Writer whose Write returns an error if the bytes differ from those that the
// reader in the field want returns.
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

// A transfer is stopped up to a thousand times. Each time a new Reader continues it, reading from
// the Rest of the stopped Reader. Every byte arrives, in order.
func TestCopy_LosesNoByteWhenStopped(t *testing.T) {
	const stops = 1000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	helper := []ctxshutdown.InterruptOption{ctxshutdown.Detached()}
	for _, test := range []struct {
		name   string
		size   int64
		wakes  bool // a stop ends the copy at once, even if no bytes arrive
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
		{"unwakeable, by Read", 16 << 20, false, unwakeableSource, direct, byReads, nil},
		{"unwakeable, both ends wrapped", 16 << 20, false, unwakeableSource, direct, bothWrapped, nil},
		{"detached, by Read", 16 << 20, true, unwakeableSource, direct, byReads, helper},
		{"detached, by io.Copy", 16 << 20, true, unwakeableSource, throughTCP, byCopy, helper},
	} {
		t.Run(test.name, func(t *testing.T) {
			size := test.size
			if testing.Short() {
				size /= 16
			}
			w, src := test.source(t)
			got := &comparer{want: stream(seed)}
			dst, wait := test.dest(t, got)

			// The sender stops the receiver at random times: while there are bytes in the buffers
			// between sender and receiver, or while the receiver waits for more bytes.
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
					t.Fatalf("after %d stops: %v", stopped, err)
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
				t.Errorf("%d of %d bytes arrived, after %d of %d stops", got.n, size, stopped, stops)
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

// bothWrapped uses one scope for the Reader and the Writer. The documentation advises against that,
// but even then no bytes may be lost.
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

func unwakeableSource(t *testing.T) (io.WriteCloser, io.Reader) {
	w, r := pipeSource(t)
	return w, struct{ io.Reader }{r}
}

func tlsSource(t *testing.T) (io.WriteCloser, io.Reader) {
	server := httptest.NewTLSServer(nil) // a server that is used for its certificate only
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

// stuck is a destination whose Write blocks until the channel let is closed, and then returns a
// time-out.
type stuck struct {
	holds chan struct{} // closed when Write has received bytes
	let   chan struct{}
	late  bool
}

func newStuck() *stuck { return &stuck{holds: make(chan struct{}), let: make(chan struct{})} }

func (s *stuck) Write(p []byte) (int, error) {
	if len(p) > 0 {
		close(s.holds)
		<-s.let
		s.late = true
	}
	if s.late {
		return 0, os.ErrDeadlineExceeded
	}
	return 0, nil
}

// stuckReaderFrom is a stuck destination that also has the method ReadFrom, like a socket. The
// error of ReadFrom does not tell whether the source or the destination timed out.
type stuckReaderFrom struct{ *stuck }

func (s stuckReaderFrom) ReadFrom(r io.Reader) (int64, error) {
	n, err := r.Read(make([]byte, 100))
	if err == nil {
		_, err = s.Write(make([]byte, n))
	}
	return 0, &net.OpError{Op: "readfrom", Err: err}
}

// If the destination times out when the scope is stopped, the bytes that were passed to its Write
// are lost. Then io.Copy must return an error.
func TestCopy_ReturnsTimeoutOfDestination(t *testing.T) {
	for name, wrap := range map[string]func(*stuck) io.Writer{
		"a Writer":                     func(s *stuck) io.Writer { return s },
		"a ReaderFrom":                 func(s *stuck) io.Writer { return stuckReaderFrom{s} },
		"a ReaderFrom behind a buffer": func(s *stuck) io.Writer { return bufio.NewWriter(stuckReaderFrom{s}) },
		"a ReaderFrom in our Writer": func(s *stuck) io.Writer {
			return ctxshutdown.NewWriter(context.Background(), stuckReaderFrom{s})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := ctxshutdown.New(t.Context())
			client, conn := net.Pipe()
			go func() {
				defer client.Close()
				io.WriteString(client, "lost")
			}()
			dst := newStuck()
			r := ctxshutdown.NewReader(s, conn)
			go func() {
				<-dst.holds
				s.Shutdown()
				close(dst.let)
			}()
			if _, err := io.Copy(wrap(dst), r); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the copy returned %v although bytes were lost", err)
			}
		})
	}
}

// After the stop, io.Copy returns the error of the destination's Write, even if that error is
// io.EOF.
func TestCopy_ReturnsErrorOfWriteEvenIfItIsEOF(t *testing.T) {
	for name, source := range map[string]io.Reader{
		"woken":      pipeWith("bytes"),
		"not woken":  struct{ io.Reader }{strings.NewReader("bytes")},
		"two by two": ctxshutdown.NewReader(context.Background(), pipeWith("bytes")),
		"detached":   ctxshutdown.NewReader(context.Background(), struct{ io.Reader }{strings.NewReader("bytes")}, ctxshutdown.Detached()),
	} {
		t.Run(name, func(t *testing.T) {
			s := ctxshutdown.New(t.Context())
			closing := writerFunc(func([]byte) (int, error) {
				s.Shutdown()
				// some writers return io.EOF from Write, such as a channel of
				// golang.org/x/crypto/ssh
				return 0, io.EOF
			})
			if _, err := io.Copy(closing, ctxshutdown.NewReader(s, source)); err != io.EOF {
				t.Errorf("io.Copy returns %v, want the error of the destination", err)
			}
		})
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func pipeWith(text string) io.Reader {
	client, conn := net.Pipe()
	go func() {
		defer client.Close()
		io.WriteString(client, text)
	}()
	return conn
}

// If the context of the Writer has ended and that of the Reader has not, io.Copy returns an error
// and reads nothing.
func TestCopy_ReadsNothingIfWriterIsStopped(t *testing.T) {
	for name, source := range map[string]func() io.Reader{
		"woken":     func() io.Reader { return pipeWith("bytes") },
		"not woken": func() io.Reader { return strings.NewReader("bytes") },
		"file":      func() io.Reader { return file(t, "bytes") },
	} {
		t.Run(name, func(t *testing.T) {
			source := source()
			reading, writing := ctxshutdown.New(t.Context()), ctxshutdown.New(t.Context())
			r := ctxshutdown.NewReader(reading, source)
			w := ctxshutdown.NewWriter(writing, io.Discard)
			writing.ShutdownCause(errCause)
			n, err := io.Copy(w, r)
			if n != 0 || !errors.Is(err, ctxshutdown.ErrShutdown) || !errors.Is(err, errCause) || r.Stopped() {
				t.Errorf("copied %d bytes, %v; Stopped of the Reader: %v", n, err, r.Stopped())
			}
			rest, err := io.ReadAll(r)
			if diff := cmp.Diff("bytes", string(rest)); diff != "" || err != nil {
				t.Errorf("bytes left in the source (-want +got), %v:\n%s", err, diff)
			}
		})
	}
}

func file(t *testing.T, text string) io.Reader {
	path := t.TempDir() + "/f"
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
