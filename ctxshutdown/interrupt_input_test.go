package ctxshutdown_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/testkit"
)

// This file tests invalid arguments, and sources and destinations that break the contract of their
// interface.

func TestInterrupts_ConstructorsPanicOnNilArguments(t *testing.T) {
	var none context.Context
	var seq iter.Seq[int]
	var pairs iter.Seq2[int, int]
	var f func(context.Context) (int, error)
	ln := newFakeListener()
	const ctx = "ctxshutdown: nil context"
	testInputs(t, []input{
		{"NewReader, context", func() { ctxshutdown.NewReader(none, strings.NewReader("")) }, ctx},
		{"NewWriter, context", func() { ctxshutdown.NewWriter(none, io.Discard) }, ctx},
		{"NewListener, context", func() { ctxshutdown.NewListener(none, ln) }, ctx},
		{"NewListener, context, guarded", func() { ctxshutdown.NewListener(none, ln, ctxshutdown.Guarded()) }, ctx},
		{"Seq, context", func() { ctxshutdown.Seq(none, endless) }, ctx},
		{"Seq2, context", func() { ctxshutdown.Seq2(none, queueOf(1).pairs) }, ctx},
		{"All, context", func() { ctxshutdown.All(none, make(chan int)) }, ctx},
		{"Recv, context", func() { ctxshutdown.Recv(none, make(chan int)) }, ctx},
		{"Send, context", func() { ctxshutdown.Send(none, make(chan int), 1) }, ctx},
		{"Call, context", func() { ctxshutdown.Call(none, func(context.Context) (int, error) { return 0, nil }) }, ctx},
		{"NewReader", func() { ctxshutdown.NewReader(t.Context(), nil) }, "ctxshutdown: NewReader of a nil io.Reader"},
		{"NewWriter", func() { ctxshutdown.NewWriter(t.Context(), nil) }, "ctxshutdown: NewWriter of a nil io.Writer"},
		{"NewListener", func() { ctxshutdown.NewListener(t.Context(), nil) }, "ctxshutdown: NewListener of a nil net.Listener"},
		{"Seq", func() { ctxshutdown.Seq(t.Context(), seq) }, "ctxshutdown: Seq of a nil sequence"},
		{"Seq2", func() { ctxshutdown.Seq2(t.Context(), pairs) }, "ctxshutdown: Seq2 of a nil sequence"},
		{"Call", func() { ctxshutdown.Call(t.Context(), f) }, "ctxshutdown: Call of a nil function"},
		{"options", func() {
			ctxshutdown.NewReader(t.Context(), strings.NewReader(""), nil, ctxshutdown.Guarded(), nil)
			ctxshutdown.NewWriter(t.Context(), io.Discard, nil, nil)
			ctxshutdown.NewListener(t.Context(), newFakeListener(), nil)
		}, noPanic},
	})
	if ln.closes != 0 {
		t.Error("a constructor that panics has closed the listener")
	}
}

func TestInterrupts_ConstructorsPanicOnZeroSwansong(t *testing.T) {
	zero := new(ctxshutdown.Swansong)
	const want = "ctxshutdown: use of a zero Swansong; make one with New or WithCancel"
	testInputs(t, []input{
		{"NewReader", func() { ctxshutdown.NewReader(zero, strings.NewReader("")) }, want},
		{"NewWriter", func() { ctxshutdown.NewWriter(zero, io.Discard) }, want},
		{"NewListener", func() { ctxshutdown.NewListener(zero, newFakeListener()) }, want},
		{"Seq", func() {
			for range ctxshutdown.Seq(zero, endless) {
			}
		}, want},
		{"All", func() {
			for range ctxshutdown.All(zero, make(chan int)) {
			}
		}, want},
		{"Recv", func() { ctxshutdown.Recv(zero, make(chan int)) }, want},
		{"Send", func() { ctxshutdown.Send(zero, make(chan int), 1) }, want},
		{"Call", func() { ctxshutdown.Call(zero, func(context.Context) (int, error) { return 0, nil }) }, want},
	})
}

// ways are functions that create a Reader, one for each way in which a Reader reads from its
// source.
var ways = map[string]func(ctx context.Context, src io.Reader, opts ...ctxshutdown.InterruptOption) *ctxshutdown.Reader{
	"unwakeable": ctxshutdown.NewReader,
	"with deadlines": func(ctx context.Context, src io.Reader, opts ...ctxshutdown.InterruptOption) *ctxshutdown.Reader {
		return ctxshutdown.NewReader(ctx, &deadlined{src}, opts...)
	},
	"deadlines refused": func(ctx context.Context, src io.Reader, opts ...ctxshutdown.InterruptOption) *ctxshutdown.Reader {
		return ctxshutdown.NewReader(ctx, refusing{src}, opts...)
	},
	"detached": func(ctx context.Context, src io.Reader, opts ...ctxshutdown.InterruptOption) *ctxshutdown.Reader {
		return ctxshutdown.NewReader(ctx, src, append(opts, ctxshutdown.Detached())...)
	},
}

func inAllWays(t *testing.T, src func() io.Reader, test func(t *testing.T, r *ctxshutdown.Reader, end func())) {
	for name, read := range ways {
		t.Run(name, func(t *testing.T) {
			inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
				test(t, read(ctx, src(), ctxshutdown.Guarded()), end)
			})
		})
	}
}

// If the source returns an invalid count of bytes, Read does not return that count, because the
// caller would slice its buffer with it.
func TestReader_ReportsInvalidCountOfSource(t *testing.T) {
	for _, count := range []int{-1, math.MinInt / 2, 101, math.MaxInt / 2} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			good := false
			src := func() io.Reader {
				return readerFunc(func(p []byte) (int, error) {
					if good {
						return copy(p, "good again"), nil
					}
					return count, nil
				})
			}
			inAllWays(t, src, func(t *testing.T, r *ctxshutdown.Reader, end func()) {
				good = false
				got := readOnce(r)
				want := fmt.Sprintf("is broken: its Read returned the count %d for a buffer of 100 bytes", count)
				if got.N != 0 || got.Err == nil || !strings.Contains(got.Err.Error(), want) {
					t.Errorf("Read: %v", got)
				}
				good = true
				wantResult(t, "the next Read", data("good again"), readOnce(r))
				end()
				wantResult(t, "Read after the stop", atEOF, readOnce(r))
			})
		})
	}
}

func TestReader_ReturnsEmptyReadsOfSource(t *testing.T) {
	src := func() io.Reader { return readerFunc(func([]byte) (int, error) { return 0, nil }) }
	inAllWays(t, src, func(t *testing.T, r *ctxshutdown.Reader, end func()) {
		for range 1000 {
			wantResult(t, "Read", result{}, readOnce(r))
		}
		got := make(chan result)
		go func() {
			for {
				if got <- readOnce(r); r.Stopped() {
					close(got)
					return
				}
			}
		}()
		wantResult(t, "Read", result{}, <-got)
		end()
		for last := range got {
			if last != (result{}) && last != atEOF {
				t.Errorf("Read: %v", last)
			}
		}
	})
}

func TestReader_ReadsNothingIntoEmptyBuffer(t *testing.T) {
	inAllWays(t, func() io.Reader { return strings.NewReader("bytes") }, func(t *testing.T, r *ctxshutdown.Reader, end func()) {
		for _, p := range [][]byte{nil, {}} {
			if n, err := r.Read(p); n != 0 || err != nil {
				t.Errorf("Read: %d, %v", n, err)
			}
		}
		wantResult(t, "Read", data("bytes"), readOnce(r))
		end()
		if n, err := r.Read(nil); n != 0 || err != io.EOF {
			t.Errorf("Read after the stop: %d, %v", n, err)
		}
	})
}

// A panic of the source reaches the caller of Read, even if the source is read in the background
// goroutine. Afterwards the Reader is still usable.
func TestReader_PanicOfSourceReachesCaller(t *testing.T) {
	src := func() io.Reader {
		panics := 2
		return readerFunc(func(p []byte) (int, error) {
			if panics--; panics >= 0 {
				panic(errCause)
			}
			return copy(p, "bytes"), nil
		})
	}
	inAllWays(t, src, func(t *testing.T, r *ctxshutdown.Reader, end func()) {
		for range 2 {
			testkit.Equal(t, "panic", panicOf(func() { readOnce(r) }), "the cause")
		}
		wantResult(t, "Read", data("bytes"), readOnce(r))
		end()
		wantResult(t, "Read after the stop", atEOF, readOnce(r))
		r.Close()
	})
}

// If a wake makes Read of a connection panic, the Reader still restores the deadline of the
// connection.
func TestReader_RestoresDeadlineAfterPanic(t *testing.T) {
	inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
		client, conn := net.Pipe()
		r := ctxshutdown.NewReader(ctx, panicking{conn})
		panicked := make(chan string)
		go func() { panicked <- panicOf(func() { readOnce(r) }) }()
		synctest.Wait()
		end()
		if got := <-panicked; got != "read pipe: i/o timeout" {
			t.Errorf("panic: %s", got)
		}
		checkTransfer(t, conn, client, "bytes")
	})
}

type panicking struct{ net.Conn }

func (c panicking) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		panic(err)
	}
	return n, err
}

// If the source calls runtime.Goexit, the goroutine that called Read ends. If the source does so in
// the background goroutine of a detached Reader, the goroutine that called Read must not stay
// blocked for ever.
func TestReader_GoexitInSourceDoesNotBlockReadForEver(t *testing.T) {
	goexit := readerFunc(func([]byte) (int, error) {
		runtime.Goexit()
		return 0, nil
	})
	t.Run("detached", func(t *testing.T) {
		inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
			r := ctxshutdown.NewReader(ctx, goexit, ctxshutdown.Detached(), ctxshutdown.Guarded())
			const want = "ctxshutdown: Reader: the source ended its goroutine with runtime.Goexit"
			for range 2 {
				if got := readOnce(r); got.N != 0 || got.Err == nil || got.Err.Error() != want {
					t.Errorf("Read: %v", got)
				}
			}
			end()
			wantResult(t, "Read after the stop", atEOF, readOnce(r))
		})
	})
	for name, read := range ways {
		if name == "detached" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
				r := read(ctx, goexit)
				over := make(chan struct{})
				go func() {
					defer close(over)
					readOnce(r)
					t.Error("Read returns after Goexit")
				}()
				<-over
				end()
				wantResult(t, "Read after the stop", atEOF, readOnce(r))
			})
		})
	}
}

func TestWriter_ReportsInvalidCountOfDestination(t *testing.T) {
	for _, test := range []struct {
		count int
		err   error
		want  result
		text  string
	}{
		{-1, nil, result{}, "is broken: its Write returned the count -1 for a buffer of 5 bytes"},
		{math.MinInt / 2, errCause, result{}, fmt.Sprintf("is broken: its Write returned the count %d for a buffer of 5 bytes", math.MinInt/2)},
		{6, nil, result{}, "is broken: its Write returned the count 6 for a buffer of 5 bytes"},
		{3, nil, result{N: 3}, "short write"},
		{0, nil, result{N: 0}, "short write"},
		{3, errCause, result{N: 3}, "the cause"},
	} {
		t.Run(fmt.Sprint(test.count, " ", test.err), func(t *testing.T) {
			for name, wrap := range map[string]func(io.Writer) io.Writer{
				"unwakeable":     func(w io.Writer) io.Writer { return w },
				"with deadlines": func(w io.Writer) io.Writer { return deadlinedWriter{w} },
			} {
				onTiers(t, func(t *testing.T, ctx context.Context, end func()) {
					broken := wrap(writerFunc(func(p []byte) (int, error) { return test.count, test.err }))
					got := writeOnce(ctxshutdown.NewWriter(ctx, broken), "bytes")
					if got.N != test.want.N || got.Err == nil || !strings.HasSuffix(got.Err.Error(), test.text) {
						t.Errorf("%s: Write: %v, want %d, %q", name, got, test.want.N, test.text)
					}
					n, err := io.Copy(ctxshutdown.NewWriter(ctx, broken), plain("bytes"))
					if n < 0 || n > 5 || err == nil {
						t.Errorf("%s: io.Copy: %d, %v", name, n, err)
					}
				})
			}
		})
	}
}

// plain returns a reader of text. Its only method is Read.
func plain(text string) io.Reader { return struct{ io.Reader }{strings.NewReader(text)} }

// A panic of the destination reaches the caller of Write. Afterwards the Writer is still usable.
func TestWriter_PanicOfDestinationReachesCaller(t *testing.T) {
	onTiers(t, func(t *testing.T, ctx context.Context, end func()) {
		panics := true
		var text bytes.Buffer
		w := ctxshutdown.NewWriter(ctx, deadlinedWriter{writerFunc(func(p []byte) (int, error) {
			if panics {
				panic(errCause)
			}
			return text.Write(p)
		})})
		testkit.Equal(t, "panic", panicOf(func() { writeOnce(w, "bytes") }), "the cause")
		panics = false
		wantResult(t, "Write", result{N: 5}, writeOnce(w, "bytes"))
		end()
		if got := writeOnce(w, "bytes"); !errors.Is(got.Err, errCause) || text.String() != "bytes" {
			t.Errorf("Write after the stop: %v; %q was written", got, text.String())
		}
	})
}
