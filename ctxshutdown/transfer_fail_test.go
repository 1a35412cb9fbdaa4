package ctxshutdown_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/swansong-go/swansong/ctxshutdown"
)

// A stuck destination takes bytes that it cannot pass on: it waits until it is let go, and then times out.
type stuck struct {
	holds chan struct{} // closed once it has bytes
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

// stuckReaderFrom is one that reads for itself, as sockets do. Its error does not say which side timed out.
type stuckReaderFrom struct{ *stuck }

func (s stuckReaderFrom) ReadFrom(r io.Reader) (int64, error) {
	n, err := r.Read(make([]byte, 100))
	if err == nil {
		_, err = s.Write(make([]byte, n))
	}
	return 0, &net.OpError{Op: "readfrom", Err: err}
}

// When the destination times out at the very time of the stop, what it held is lost. That is an error, and not a stop.
func TestCopy_ATimeoutOfTheDestinationIsNotTheStop(t *testing.T) {
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
				t.Errorf("the copy returned %v, and the bytes are lost", err)
			}
		})
	}
}

// A destination that fails after the stop is not forgiven, whatever its words for it.
func TestCopy_AnEOFOfTheDestinationIsAnError(t *testing.T) {
	for name, source := range map[string]io.Reader{
		"woken":       pipeWith("bytes"),
		"not woken":   struct{ io.Reader }{strings.NewReader("bytes")},
		"two by two":  ctxshutdown.NewReader(context.Background(), pipeWith("bytes")),
		"by a helper": ctxshutdown.NewReader(context.Background(), struct{ io.Reader }{strings.NewReader("bytes")}, ctxshutdown.Detached()),
	} {
		t.Run(name, func(t *testing.T) {
			s := ctxshutdown.New(t.Context())
			closing := writerFunc(func([]byte) (int, error) {
				s.Shutdown()
				return 0, io.EOF // as channels of x/crypto/ssh have it
			})
			if _, err := io.Copy(closing, ctxshutdown.NewReader(s, source)); err != io.EOF {
				t.Errorf("%v, want the error of the destination", err)
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

// io.Copy to a Writer that has been stopped, by a context that is not the Reader's, says so and has read nothing.
func TestCopy_StoppedAtTheWriter(t *testing.T) {
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
				t.Errorf("copied %d bytes, %v; the reader is stopped: %v", n, err, r.Stopped())
			}
			rest, err := io.ReadAll(r)
			if diff := cmp.Diff("bytes", string(rest)); diff != "" || err != nil {
				t.Errorf("what is left (-want +got), %v:\n%s", err, diff)
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

// A source that never has anything is given up on, be it stopped or not.
func TestCopy_OfNothingForEver(t *testing.T) {
	asked := 0
	nothing := struct{ io.Reader }{readerFunc(func([]byte) (int, error) {
		if asked++; asked > 1_000_000 {
			return 0, errors.New("asked a million times")
		}
		return 0, nil
	})}
	s := ctxshutdown.New(t.Context())
	for name, copied := range map[string]func() (int64, error){
		"Reader": func() (int64, error) { return io.Copy(io.Discard, ctxshutdown.NewReader(s, nothing)) },
		"Writer": func() (int64, error) { return io.Copy(ctxshutdown.NewWriter(s, io.Discard), nothing) },
	} {
		n, err := copied()
		if diff := cmp.Diff(io.ErrNoProgress, err, cmpopts.EquateErrors()); n != 0 || diff != "" {
			t.Errorf("%s: copied %d bytes (-want +got):\n%s", name, n, diff)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
