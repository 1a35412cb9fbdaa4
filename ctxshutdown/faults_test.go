package ctxshutdown_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// The type panics implements every interface whose methods package ctxshutdown calls. Most of these
// methods panic.
type panics struct{}

func (panics) Read([]byte) (int, error)                  { panic(errCause) }
func (panics) Write([]byte) (int, error)                 { panic(errCause) }
func (panics) Accept() (net.Conn, error)                 { panic(errCause) }
func (panics) Addr() net.Addr                            { panic(errCause) }
func (panics) Close() error                              { return nil }
func (panics) SetReadDeadline(time.Time) error           { panic(errCause) }
func (panics) SetWriteDeadline(time.Time) error          { panic(errCause) }
func (panics) Enabled(context.Context, slog.Level) bool  { return true }
func (panics) Handle(context.Context, slog.Record) error { panic(errCause) }
func (p panics) WithAttrs([]slog.Attr) slog.Handler      { return p }
func (p panics) WithGroup(string) slog.Handler           { return p }

// If a method that the user has implemented panics, the panic reaches the caller. No guard and no
// lock stays held, so the scope drains afterwards.
func TestScope_DrainsAfterPanicInCallback(t *testing.T) {
	guarded := ctxshutdown.Guarded()
	numbers := iter.Seq[int](func(yield func(int) bool) {
		yield(1)
		panic(errCause)
	})
	for _, fault := range []struct {
		name string
		do   func(s *ctxshutdown.Swansong)
	}{
		{"Read", func(s *ctxshutdown.Swansong) {
			r := ctxshutdown.NewReader(s, panics{}, guarded)
			defer r.Close()
			r.Read(make([]byte, 1))
		}},
		{"Read, by io.Copy", func(s *ctxshutdown.Swansong) {
			r := ctxshutdown.NewReader(s, panics{}, guarded)
			defer r.Close()
			io.Copy(io.Discard, r)
		}},
		{"Write", func(s *ctxshutdown.Swansong) {
			w := ctxshutdown.NewWriter(s.Work(), panics{}, guarded)
			defer w.Close()
			w.Write([]byte("x"))
		}},
		{"Write, by io.Copy", func(s *ctxshutdown.Swansong) {
			w := ctxshutdown.NewWriter(s, panics{}, guarded)
			defer w.Close()
			io.Copy(w, bytes.NewReader(make([]byte, 100)))
		}},
		{"Accept", func(s *ctxshutdown.Swansong) {
			ln := ctxshutdown.NewListener(s, panics{}, guarded)
			defer ln.Close()
			ln.Accept()
		}},
		{"a sequence", func(s *ctxshutdown.Swansong) {
			for range ctxshutdown.Seq(s, numbers) {
			}
		}},
		{"the body of a range", func(s *ctxshutdown.Swansong) {
			for range ctxshutdown.Seq(s, numbers) {
				g := s.Guard()
				defer g.Release()
				panic(errCause)
			}
		}},
		{"a logger that is told of a late release", func(s *ctxshutdown.Swansong) {
			c := child(s, ctxshutdown.WithTrace(), ctxshutdown.WithLogger(slog.New(panics{})))
			g := c.Guard()
			c.Force(nil)
			g.Release()
		}},
		{"the Err of a context", func(s *ctxshutdown.Swansong) {
			ctxshutdown.Acquire(onErr{s, nil, nil})
		}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			c := claim{t, "docs/internals/core.md#semantic-10"}
			s := ctxshutdown.New(t.Context())
			func() {
				defer func() { c.isTrue("the panic reaches the caller", recover() != nil) }()
				fault.do(s)
			}()
			c.checkState(s, ctxshutdown.Running, 0)
			g, ok := s.TryGuard()
			c.isTrue("TryGuard succeeds after the panic", ok)
			g.Release()
			c.awaitCompletion(s.Shutdown())
			c.awaitClosed("Work", s.Work().Done())
		})
	}
}

// If other code closes the file of a Reader or a Writer, the next call returns an error, the Reader
// or Writer ends, and its guard is released.
func TestGuarded_ReadersAndWritersReleaseGuardIfFileIsClosed(t *testing.T) {
	for name, op := range map[string]func(s *ctxshutdown.Swansong, f *os.File) (io.Closer, error){
		"Read": func(s *ctxshutdown.Swansong, f *os.File) (io.Closer, error) {
			r := ctxshutdown.NewReader(s, f, ctxshutdown.Guarded())
			f.Close()
			_, err := r.Read(make([]byte, 1))
			return r, err
		},
		"Read, detached": func(s *ctxshutdown.Swansong, f *os.File) (io.Closer, error) {
			r := ctxshutdown.NewReader(s, f, ctxshutdown.Guarded(), ctxshutdown.Detached())
			f.Close()
			_, err := r.Read(make([]byte, 1))
			return r, err
		},
		"WriteTo": func(s *ctxshutdown.Swansong, f *os.File) (io.Closer, error) {
			r := ctxshutdown.NewReader(s, f, ctxshutdown.Guarded())
			f.Close()
			_, err := io.Copy(io.Discard, r)
			return r, err
		},
		"Write": func(s *ctxshutdown.Swansong, f *os.File) (io.Closer, error) {
			w := ctxshutdown.NewWriter(s, f, ctxshutdown.Guarded())
			f.Close()
			_, err := w.Write([]byte("x"))
			return w, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := claim{t, "docs/internals/core.md#semantic-10"}
			s := ctxshutdown.New(t.Context())
			f, err := os.Create(filepath.Join(t.TempDir(), "file"))
			if err != nil {
				t.Fatal(err)
			}
			closer, err := op(s, f)
			c.isTrue("the error matches os.ErrClosed: "+errString(err), errors.Is(err, os.ErrClosed))
			closer.Close()
			c.checkState(s, ctxshutdown.Running, 0)
			c.awaitCompletion(s.Shutdown())
		})
	}
}

func errString(err error) string {
	if err == nil {
		return "nil"
	}
	return err.Error()
}
