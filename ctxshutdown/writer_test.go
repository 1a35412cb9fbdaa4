package ctxshutdown_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/testkit"
)

//go:noinline
func writeOnce(w io.Writer, text string) result {
	n, err := io.WriteString(w, text)
	return result{N: n, Err: err}
}

// writing calls writeOnce in a new goroutine and returns a channel that receives the result.
func writing(w io.Writer, text string) <-chan result {
	got := make(chan result, 1)
	go func() { got <- writeOnce(w, text) }()
	return got
}

// wantRefusal checks the result of a Write that was refused or cut short because the context had
// ended.
func wantRefusal(t *testing.T, ctx context.Context, got result, n int, text string) {
	t.Helper()
	for _, want := range []error{ctxshutdown.ErrShutdown, context.Cause(ctx)} {
		if !errors.Is(got.Err, want) {
			t.Errorf("Write: %v, does not match %v", got.Err, want)
		}
	}
	if errors.Is(got.Err, os.ErrDeadlineExceeded) || errors.Is(got.Err, os.ErrClosed) {
		t.Errorf("Write: %v, matches an error that it must not match", got.Err)
	}
	if diff := cmp.Diff(text, fmt.Sprint(got.Err)); got.N != n || diff != "" {
		t.Errorf("Write: %d bytes, want %d; text of the error (-want +got):\n%s", got.N, n, diff)
	}
}

const (
	refused = "ctxshutdown: write refused: shut down (the cause)"
	cut     = "ctxshutdown: write cut short: shut down (the cause)"
)

func TestWriter_RefusesAfterStop(t *testing.T) {
	for name, wrap := range map[string]func(w io.Writer) io.Writer{
		"unwakeable":     func(w io.Writer) io.Writer { return w },
		"with deadlines": func(w io.Writer) io.Writer { return deadlinedWriter{w} },
	} {
		t.Run(name, func(t *testing.T) {
			onTiers(t, func(t *testing.T, ctx context.Context, end func()) {
				var text strings.Builder
				w := ctxshutdown.NewWriter(ctx, wrap(&text))
				wantResult(t, "Write", result{N: 6}, writeOnce(w, "before"))
				end()
				wantRefusal(t, ctx, writeOnce(w, "after"), 0, refused)
				wantRefusal(t, ctx, writeOnce(w, ""), 0, refused)
				if n, err := io.Copy(w, strings.NewReader("copied")); n != 0 || !errors.Is(err, ctxshutdown.ErrShutdown) {
					t.Errorf("io.Copy: %d, %v", n, err)
				}
				if text.String() != "before" {
					t.Errorf("%q was written after the stop", text.String())
				}
			})
		})
	}
}

// deadlinedWriter is a destination that accepts write deadlines and ignores them.
type deadlinedWriter struct{ io.Writer }

func (deadlinedWriter) SetWriteDeadline(time.Time) error { return nil }

func TestWriter_ErrorSaysWhyWriteIsRefused(t *testing.T) {
	forced := ctxshutdown.New(t.Context())
	forced.Force(nil)
	stopped := ctxshutdown.New(t.Context())
	stopped.Shutdown()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx  context.Context
		want string
	}{
		"Shutdown": {stopped, "ctxshutdown: write refused: shut down"},
		"Force":    {forced.Work(), "ctxshutdown: write refused: shut down (ctxshutdown: forced)"},
		"no scope": {cancelled, "ctxshutdown: write refused: shut down (context canceled)"},
	} {
		t.Run(name, func(t *testing.T) {
			wantRefusal(t, test.ctx, writeOnce(ctxshutdown.NewWriter(test.ctx, io.Discard), "bytes"), 0, test.want)
		})
	}
}

// merged is a context that has the values of two contexts. A server might create one for a request.
type merged struct {
	context.Context
	and context.Context
}

func (m merged) Value(key any) any {
	if v := m.Context.Value(key); v != nil {
		return v
	}
	return m.and.Value(key)
}

// When a hard context ends, a blocked Write is cut short. When a soft context ends, a blocked Write
// continues.
func TestWriter_EndOfWorkCutsWriteShortButStopDoesNot(t *testing.T) {
	type scope = *ctxshutdown.Swansong
	force := func(_ *testing.T, root scope, _ context.Context) { root.Force(errCause) }
	shutdown := func(_ *testing.T, root scope, _ context.Context) { root.ShutdownCause(errCause) }
	own := func(_ *testing.T, _ scope, ctx context.Context) { ctx.(scope).ShutdownCause(errCause) }
	hour := func(*testing.T, scope, context.Context) { time.Sleep(time.Hour) }
	timeout := func(t *testing.T, ctx context.Context) context.Context {
		return owned(t)(context.WithTimeoutCause(ctx, time.Hour, errCause))
	}
	for _, test := range []struct {
		name string
		of   func(t *testing.T, root scope) context.Context
		end  func(t *testing.T, root scope, ctx context.Context)
		cuts bool
	}{
		{"Work by Force", func(_ *testing.T, root scope) context.Context { return root.Work() }, force, true},
		{"Work of a child by Force of the root", func(_ *testing.T, root scope) context.Context { return child(root).Work() }, force, true},
		{"Work of a context by Force", func(_ *testing.T, root scope) context.Context { return ctxshutdown.Work(request{root, "r"}) }, force, true},
		{"derived from Work by Force", func(t *testing.T, root scope) context.Context { return timeout(t, request{root.Work(), "r"}) }, force, true},
		{"Work with more values, of its root", func(_ *testing.T, root scope) context.Context { return merged{root.Work(), root} }, force, true},
		{"time-out on Work", func(t *testing.T, root scope) context.Context { return timeout(t, root.Work()) }, hour, true},
		{"Work of a child of Work by Force", func(_ *testing.T, root scope) context.Context { return child(root.Work()).Work() }, force, true},
		{"root", func(_ *testing.T, root scope) context.Context { return root }, shutdown, false},
		{"root by Force", func(_ *testing.T, root scope) context.Context { return root }, force, false},
		{"child by its root", func(_ *testing.T, root scope) context.Context { return child(root) }, shutdown, false},
		{"time-out on the root", func(t *testing.T, root scope) context.Context { return timeout(t, root) }, hour, false},
		{"child of Work by its own Shutdown", func(_ *testing.T, root scope) context.Context { return child(root.Work()) }, own, false},
		{"child of Work by Force", func(_ *testing.T, root scope) context.Context { return child(root.Work()) }, force, false},
		{"a root of its own in Work", func(_ *testing.T, root scope) context.Context { return ctxshutdown.New(root.Work()) }, own, false},
		{"no scope", func(t *testing.T, _ scope) context.Context { return timeout(t, context.Background()) }, hour, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				root := ctxshutdown.New(t.Context())
				ctx := test.of(t, root)
				client, conn := net.Pipe()
				defer conn.Close()
				w := ctxshutdown.NewWriter(ctx, conn)
				got := writing(w, "one record")
				head := make([]byte, 3)
				io.ReadFull(client, head)
				synctest.Wait()
				test.end(t, root, ctx)
				synctest.Wait()
				if test.cuts {
					wantRefusal(t, ctx, <-got, 3, cut)
				} else {
					wantResult(t, "the other end", data(" record"), readOnce(client))
					wantResult(t, "Write", result{N: 10}, <-got)
				}
				wantRefusal(t, ctx, writeOnce(w, "another"), 0, refused)

				got = writing(conn, "the next owner")
				time.Sleep(time.Minute)
				wantResult(t, "the other end", data("the next owner"), readOnce(client))
				wantResult(t, "its Write", result{N: 14}, <-got)
			})
		})
	}
}

func TestWriter_RestoresDeadlineOfUserAfterContextEnds(t *testing.T) {
	for _, tier := range tiers {
		for name, set := range map[string]struct{ before, during, after time.Duration }{
			"before": {before: time.Hour}, "during": {during: time.Hour}, "before and during": {time.Minute * 2, time.Hour, 0},
			"after": {after: time.Hour}, "before and after": {time.Minute * 2, 0, time.Hour},
		} {
			t.Run(tier.name+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, end := tier.make(t)
					start := time.Now()
					client, conn := net.Pipe()
					w := ctxshutdown.NewWriter(ctx, conn)
					deadline := func(d time.Duration) {
						if d > 0 && w.SetWriteDeadline(start.Add(d)) != nil {
							t.Error("SetWriteDeadline fails")
						}
					}
					deadline(set.before)
					got := writing(w, "bytes")
					synctest.Wait()
					deadline(set.during)
					time.Sleep(time.Minute)
					end()
					synctest.Wait()
					if len(got) == 0 { // ctx is soft: its end does not wake a blocked Write
						readOnce(client)
					}
					<-got
					deadline(set.after)
					wantResult(t, "the next owner", result{Err: os.ErrDeadlineExceeded}, writeOnce(conn, "bytes"))
					if waited := time.Since(start); waited != time.Hour {
						t.Errorf("the deadline of the destination passed after %v, want an hour", waited)
					}
				})
			})
		}
	}
}

// If a deadline that the user has set passes, Write returns the time-out, and the Writer does not
// end.
func TestWriter_ContinuesAfterTimeout(t *testing.T) {
	inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
		client, conn := net.Pipe()
		w := ctxshutdown.NewWriter(ctx, conn, ctxshutdown.Guarded())
		s, _ := ctxshutdown.FromContext(ctx)
		guards := s.GuardCount()
		w.SetWriteDeadline(time.Now().Add(time.Second))
		wantResult(t, "Write", result{Err: os.ErrDeadlineExceeded}, writeOnce(w, "bytes"))
		if s.GuardCount() != guards {
			t.Error("the guard was released")
		}
		w.SetWriteDeadline(time.Time{})
		got := writing(w, "bytes")
		wantResult(t, "the other end", data("bytes"), readOnce(client))
		wantResult(t, "Write", result{N: 5}, <-got)
	})
}

func TestWriter_SetWriteDeadlineFailsIfUnsupported(t *testing.T) {
	for _, tier := range tiers {
		ctx, _ := tier.make(t)
		if err := ctxshutdown.NewWriter(ctx, io.Discard).SetWriteDeadline(time.Now()); !errors.Is(err, os.ErrNoDeadline) {
			t.Errorf("%s: %v", tier.name, err)
		}
	}
}

// The context ends after Write has checked it and before Write writes to the destination. The write
// to the destination must be woken.
func TestWriter_StopJustBeforeDestinationWriteWakesWrite(t *testing.T) {
	for _, wroteBefore := range []bool{false, true} {
		for check := range int32(3) {
			t.Run(fmt.Sprintf("wrote before %v, at check %d", wroteBefore, check+1), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					client, conn := net.Pipe()
					defer conn.Close()
					ctx := &endingAt{manual: newManual(ctxshutdown.New(t.Context()).Work())}
					w := ctxshutdown.NewWriter(ctx, conn)
					if wroteBefore {
						checkTransfer(t, client, w, "bytes")
					}
					ctx.remaining.Store(check + 1)
					got := writing(w, "bytes")
					time.Sleep(time.Minute)
					// Write may have called Err too rarely to end ctx. Then end ctx now, while
					// Write is blocked.
					ctx.endNow()
					if got := <-got; got.N != 0 || !errors.Is(got.Err, ctxshutdown.ErrShutdown) {
						t.Errorf("Write: %v", got)
					}
					checkTransfer(t, client, conn, "the next owner")
				})
			})
		}
	}
}

// The context ends while ReadFrom reads from the source. With a soft context, ReadFrom still writes
// the bytes that it has read. With a hard context, it does not write them, and returns an error
// with the number of bytes lost. The same holds for io.Copy from a Reader.
func TestWriter_ReadFromWritesOrReportsBytesReadBeforeStop(t *testing.T) {
	for name, copied := range map[string]func(w *ctxshutdown.Writer, ctx context.Context, src io.Reader) (int64, error){
		"ReadFrom": func(w *ctxshutdown.Writer, _ context.Context, src io.Reader) (int64, error) { return w.ReadFrom(src) },
		"io.Copy of a Reader": func(w *ctxshutdown.Writer, ctx context.Context, src io.Reader) (int64, error) {
			return io.Copy(w, ctxshutdown.NewReader(ctx, src))
		},
	} {
		t.Run(name, func(t *testing.T) {
			onTiers(t, func(t *testing.T, ctx context.Context, end func()) {
				src := readerFunc(func(p []byte) (int, error) { end(); return copy(p, "bytes"), nil })
				var text strings.Builder
				n, err := copied(ctxshutdown.NewWriter(ctx, deadlinedWriter{&text}), ctx, src)
				if _, soft := ctx.(*ctxshutdown.Swansong); !soft {
					wantRefusal(t, ctx, result{N: int(n), Err: err}, 0, "ctxshutdown: write refused, which lost 5 bytes already read from the source: shut down (the cause)")
				} else if n != 5 || text.String() != "bytes" {
					t.Errorf("the copy returns %d, %v; %q was written", n, err, text.String())
				}
			})
		})
	}
}

// Several goroutines write to one destination. When the hard context ends, all of these Writes are
// cut short, even if one Write notices the end of the context before the AfterFunc that wakes the
// others runs, or if a Write has failed before.
func TestWriter_EndOfWorkCutsAllConcurrentWritesShort(t *testing.T) {
	for name, happens := range map[string]func(ctx *manual, w *ctxshutdown.Writer, fail chan<- error){
		"another Write sees the end first": func(ctx *manual, w *ctxshutdown.Writer, _ chan<- error) {
			ctx.end()
			writeOnce(w, "bytes")
		},
		"another Write fails before": func(ctx *manual, w *ctxshutdown.Writer, fail chan<- error) {
			fail <- errCause
			synctest.Wait()
			ctx.end()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dst := blockedWriter{make(chan error), make(chan struct{})}
				ctx := newManual(ctxshutdown.New(t.Context()).Work())
				w := ctxshutdown.NewWriter(ctx, dst)
				all := []<-chan result{writing(w, "bytes"), writing(w, "bytes"), writing(w, "bytes")}
				synctest.Wait()
				happens(ctx, w, dst.fail)
				ctx.runAfterFuncs()
				for _, got := range all {
					if got := await(t, got); got.Err != errCause && !errors.Is(got.Err, ctxshutdown.ErrShutdown) {
						t.Errorf("Write: %v", got)
					}
				}
			})
		})
	}
}

// blockedWriter is a destination whose Write blocks until an error is sent to the channel fail or
// the write deadline passes.
type blockedWriter struct {
	fail chan error
	over chan struct{}
}

func (b blockedWriter) Write([]byte) (int, error) {
	select {
	case err := <-b.fail:
		return 0, err
	case <-b.over:
		return 0, os.ErrDeadlineExceeded
	}
}

func (b blockedWriter) SetWriteDeadline(t time.Time) error {
	// the waker may call this method several times
	if !t.IsZero() && !testkit.IsClosed(b.over) {
		close(b.over)
	}
	return nil
}

func TestWriter_CloseLetsBlockedWriteFinish(t *testing.T) {
	inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
		client, conn := net.Pipe()
		w := ctxshutdown.NewWriter(ctx, conn)
		got := writing(w, "bytes")
		synctest.Wait()
		for range 2 {
			if err := w.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
		end()
		synctest.Wait()
		wantResult(t, "the other end", data("bytes"), readOnce(client))
		wantResult(t, "the Write that was blocked goes on", result{N: 5}, <-got)
		wantResult(t, "the next Write", result{Err: os.ErrClosed}, writeOnce(w, "bytes"))
		if _, err := io.Copy(w, strings.NewReader("bytes")); !errors.Is(err, os.ErrClosed) {
			t.Errorf("io.Copy: %v", err)
		}
		got = writing(conn, "the next owner")
		wantResult(t, "the other end", data("the next owner"), readOnce(client))
		<-got
	})
}

// A soft context ends while a Write to a TLS connection is blocked. Afterwards the TLS connection
// is still usable.
func TestWriter_StopDuringWriteKeepsTLSConnectionUsable(t *testing.T) {
	s := ctxshutdown.New(t.Context())
	w, r := connections(t, "tcp")
	client, server := openTLS(t, w, r)
	writer := ctxshutdown.NewWriter(s, server)
	const size = 16 << 20 // more bytes than the socket buffers hold
	got := writing(writer, strings.Repeat("x", size))
	awaitState(t, "writeOnce", "IO wait")
	s.ShutdownCause(errCause)
	if n, err := io.CopyN(io.Discard, client, size); n != size || err != nil {
		t.Errorf("the other end: %d, %v", n, err)
	}
	wantResult(t, "Write", result{N: size}, await(t, got))
	wantRefusal(t, s, writeOnce(writer, "more"), 0, refused)
	checkTransfer(t, client, server, "the next owner")
}

// Force cuts short a blocked Write to a connection. Afterwards the connection has no deadline.
func TestWriter_ForceCutsWriteToConnection(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			s := ctxshutdown.New(t.Context())
			client, conn := connections(t, network)
			defer client.Close()
			defer conn.Close()
			w := ctxshutdown.NewWriter(s.Work(), conn)
			defer s.Guard().Release()
			const size = 64 << 20
			got := writing(w, strings.Repeat("x", size))
			awaitState(t, "writeOnce", "IO wait")
			s.ShutdownCause(errLate)
			s.Force(errCause)
			result := await(t, got)
			if result.N == 0 || result.N == size {
				t.Errorf("Write returns %d bytes written", result.N)
			}
			wantRefusal(t, s.Work(), result, result.N, cut)
			if n, err := io.CopyN(io.Discard, client, int64(result.N)); err != nil {
				t.Errorf("%d of the %d bytes that Write reported have arrived: %v", n, result.N, err)
			}
			checkTransfer(t, client, conn, "the next owner")
		})
	}
}
