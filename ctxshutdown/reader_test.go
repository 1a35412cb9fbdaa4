package ctxshutdown_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/ctxshutdown"
)

// The deadline of a source, and what a Reader and its helper do with what the source returns. How each kind of source
// ends is in interrupt_sources_test.go.

// However often a deadline is set through the Reader, before, during and after the Read that is woken: the next owner
// finds the one set last, or none.
func TestReader_LeavesTheDeadlineOfItsUser(t *testing.T) {
	type times = [3]time.Duration // from the beginning; zero: not set, negative: cleared
	set := func(r *ctxshutdown.Reader, start time.Time, d time.Duration) {
		var at time.Time
		if d > 0 {
			at = start.Add(d)
		}
		if d != 0 && r.SetReadDeadline(at) != nil {
			panic("it refuses")
		}
	}
	for _, before := range []time.Duration{0, time.Hour, -1} {
		for _, during := range []time.Duration{0, 2 * time.Hour, -1} {
			for _, after := range []time.Duration{0, 3 * time.Hour, -1} {
				t.Run(fmt.Sprint(times{before, during, after}), func(t *testing.T) {
					inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
						start := time.Now()
						client, conn := net.Pipe()
						defer client.Close()
						r := ctxshutdown.NewReader(ctx, conn)
						set(r, start, before)
						got := reading(r)
						synctest.Wait()
						set(r, start, during)
						synctest.Wait()
						if len(got) > 0 {
							t.Fatal("it does not block")
						}
						time.Sleep(time.Minute)
						end()
						wantResult(t, "Read", atEOF, <-got)
						if waited := time.Since(start); waited != time.Minute {
							t.Errorf("woken after %v", waited)
						}
						set(r, start, after)

						var want time.Duration
						for _, d := range (times{before, during, after}) {
							if d != 0 {
								want = d
							}
						}
						if want <= 0 {
							time.AfterFunc(24*time.Hour, func() { io.WriteString(client, "late") })
							wantResult(t, "the next owner, a day later", data("late"), readOnce(r.Rest()))
							return
						}
						wantResult(t, "the next owner", result{Err: os.ErrDeadlineExceeded}, readOnce(r.Rest()))
						if waited := time.Since(start); waited != want {
							t.Errorf("its deadline was after %v, want %v", waited, want)
						}
					})
				})
			}
		}
	}
}

// A slow connection has been woken, and its Read takes its time to return.
type slowConn struct {
	woken, let chan struct{}
	mu         sync.Mutex
	deadlines  []time.Time
}

func newSlowConn() *slowConn { return &slowConn{woken: make(chan struct{}), let: make(chan struct{})} }

func (c *slowConn) Read([]byte) (int, error) {
	<-c.woken
	<-c.let
	return 0, os.ErrDeadlineExceeded
}

func (c *slowConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadlines = append(c.deadlines, t)
	if !t.IsZero() && t.Before(time.Now()) {
		close(c.woken)
	}
	return nil
}

func TestReader_DeadlineSetBetweenWakeAndReturn(t *testing.T) {
	onTiers(t, func(t *testing.T, ctx context.Context, end func()) {
		conn := newSlowConn()
		r := ctxshutdown.NewReader(ctx, conn)
		got := reading(r)
		awaitState(t, "readOnce", "chan receive")
		end()
		await(t, conn.woken)
		at := time.Now().Add(time.Hour)
		if err := r.SetReadDeadline(at); err != nil {
			t.Error(err)
		}
		close(conn.let)
		wantResult(t, "Read", atEOF, await(t, got))
		if last := conn.deadlines[len(conn.deadlines)-1]; len(conn.deadlines) != 2 || !last.Equal(at) {
			t.Errorf("deadlines %v, want one that is over and then %v", conn.deadlines, at)
		}
	})
}

// A deadline set on the source itself is not touched until there is a wake-up, or a question that takes it.
func TestReader_DeadlineOfTheSourceItself(t *testing.T) {
	for _, test := range []struct {
		name  string
		use   func(r *ctxshutdown.Reader)
		wiped bool
	}{
		{"Read", func(r *ctxshutdown.Reader) {}, false},
		{"Close of another Reader", func(r *ctxshutdown.Reader) { r.Close() }, false},
		{"CanWake", func(r *ctxshutdown.Reader) { r.CanWake() }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, conn := net.Pipe()
				conn.SetReadDeadline(time.Now().Add(time.Hour))
				test.use(ctxshutdown.NewReader(t.Context(), conn))
				time.AfterFunc(24*time.Hour, func() { io.WriteString(client, "late") })
				want := result{Err: os.ErrDeadlineExceeded}
				if test.wiped {
					want = data("late")
				}
				wantResult(t, "Read", want, readOnce(ctxshutdown.NewReader(t.Context(), conn)))
			})
		})
	}
}

// The user's time-out is the user's: it is returned, and the Reader reads on.
func TestReader_TimeoutsDoNotEndIt(t *testing.T) {
	inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
		client, conn := net.Pipe()
		defer client.Close()
		r := ctxshutdown.NewReader(ctx, conn)
		for range 3 {
			r.SetReadDeadline(time.Now().Add(time.Second))
			wantResult(t, "Read", result{Err: os.ErrDeadlineExceeded}, readOnce(r))
		}
		if r.Stopped() {
			t.Error("stopped by a time-out")
		}
		r.SetReadDeadline(time.Time{})
		brings(t, r, client, "bytes")
		got := reading(r)
		synctest.Wait()
		end()
		wantResult(t, "the Read that was blocked", atEOF, <-got)
	})
}

func TestReader_SetReadDeadlineOfWhatHasNone(t *testing.T) {
	for name, src := range map[string]io.Reader{"no method": strings.NewReader(""), "it refuses": refusing{strings.NewReader("")}} {
		r := ctxshutdown.NewReader(t.Context(), src)
		if err := r.SetReadDeadline(time.Now()); !errors.Is(err, os.ErrNoDeadline) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Bytes that come together with the time-out of the wake-up are bytes.
func TestReader_DeliversWhatComesWithTheWakeUp(t *testing.T) {
	onTiers(t, func(t *testing.T, ctx context.Context, end func()) {
		conn := &deadlined{readerFunc(func(p []byte) (int, error) {
			end()
			return copy(p, "bytes"), os.ErrDeadlineExceeded
		})}
		r := ctxshutdown.NewReader(ctx, conn)
		wantResult(t, "Read", data("bytes"), readOnce(r))
		wantResult(t, "the next Read", atEOF, readOnce(r))
		if !r.Stopped() {
			t.Error("not Stopped")
		}
	})
}

// deadlined is what can be woken, or says so.
type deadlined struct{ io.Reader }

func (*deadlined) SetReadDeadline(time.Time) error { return nil }

// What the source returns after the stop is delivered as it is, errors and its end included.
func TestReader_ReturnsWhatTheSourceDoes(t *testing.T) {
	for _, want := range []result{
		data("bytes"), {"bytes", 5, io.EOF}, {"bytes", 5, errCause}, {"", 0, io.EOF}, {"", 0, errCause}, {"", 0, nil},
		{"bytes", 5, io.ErrUnexpectedEOF}, {"", 0, net.ErrClosed},
	} {
		t.Run(fmt.Sprintf("%q and %v", want.Text, want.Err), func(t *testing.T) {
			for name, wrap := range map[string]func(io.Reader) io.Reader{
				"dull":           func(r io.Reader) io.Reader { return r },
				"with deadlines": func(r io.Reader) io.Reader { return &deadlined{r} },
			} {
				onTiers(t, func(t *testing.T, ctx context.Context, end func()) {
					reads := 0
					r := ctxshutdown.NewReader(ctx, wrap(readerFunc(func(p []byte) (int, error) {
						reads++
						end()
						return copy(p, want.Text), want.Err
					})))
					wantResult(t, name, want, readOnce(r))
					if r.Stopped() {
						t.Errorf("%s: Stopped by what the source returned", name)
					}
					wantResult(t, name+", the next Read", atEOF, readOnce(r))
					if r.Stopped() != (want.Err != io.EOF) || reads != 1 {
						t.Errorf("%s: Stopped %v, after %d Reads of the source", name, r.Stopped(), reads)
					}
				})
			}
		})
	}
}

// A Read of a source that panics has left: the end of the context finds nobody to wake, and the next owner the source as
// it was.
func TestReader_LeavesASourceThatPanics(t *testing.T) {
	inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
		client, conn := net.Pipe()
		defer conn.Close()
		r := ctxshutdown.NewReader(ctx, &onceInstead{Conn: conn, read: func() (int, error) { panic(errCause) }})
		func() {
			defer func() {
				if p := recover(); p != errCause {
					t.Errorf("it panics with %v, want %v", p, errCause)
				}
			}()
			readOnce(r)
		}()
		brings(t, r, client, "the next Read")
		end()
		synctest.Wait()
		brings(t, conn, client, "the next owner")
	})
}

// An error has the Reader let go of its context. Where the source has more after that, the stop wakes who waits for it.
func TestReader_IsWokenAfterAnError(t *testing.T) {
	inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
		client, conn := net.Pipe()
		defer client.Close()
		r := ctxshutdown.NewReader(ctx, &onceInstead{Conn: conn, read: func() (int, error) { return 0, errCause }})
		wantResult(t, "Read", result{"", 0, errCause}, readOnce(r))
		got := reading(r)
		synctest.Wait()
		if len(got) > 0 {
			t.Fatal("it does not block")
		}
		end()
		wantResult(t, "the next Read", atEOF, <-got)
	})
}

// onceInstead calls read for the first Read.
type onceInstead struct {
	net.Conn
	read func() (int, error)
}

func (c *onceInstead) Read(p []byte) (int, error) {
	if read := c.read; read != nil {
		c.read = nil
		return read()
	}
	return c.Conn.Read(p)
}

// A context that ends between the look at it and the waiting: whoever is told of the end has to find the Read inside.
func TestReader_StoppedBetweenLookAndRead(t *testing.T) {
	for _, readBefore := range []bool{false, true} {
		for look := range int32(3) {
			t.Run(fmt.Sprintf("read before %v, at look %d", readBefore, look+1), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					client, conn := net.Pipe()
					defer conn.Close()
					ctx := &endingAt{manual: newManual(t.Context())}
					r := ctxshutdown.NewReader(ctx, conn)
					if readBefore {
						brings(t, r, client, "bytes")
					}
					ctx.looks.Store(look + 1)
					got := reading(r)
					time.Sleep(time.Minute)
					ctx.endNow() // where it was asked less often, and now blocks
					wantResult(t, "Read", atEOF, <-got)
					brings(t, conn, client, "the next owner")
				})
			})
		}
	}
}

// endingAt ends right after it was asked for Err for the n-th time, and has told everybody before the answer arrives.
type endingAt struct {
	*manual
	looks atomic.Int32 // left
}

func (ctx *endingAt) Err() error {
	err := ctx.manual.Err()
	if ctx.looks.Add(-1) == 0 {
		ctx.endNow()
	}
	return err
}

func (ctx *endingAt) endNow() {
	ctx.looks.Store(0)
	ctx.end()
	ctx.tell()
	synctest.Wait()
}

// Of many that read one source, each returns at the stop, though some see it before package context has told anybody,
// and others have failed before.
func TestReader_ManyReadOneSource(t *testing.T) {
	for name, happens := range map[string]func(ctx *manual, r *ctxshutdown.Reader, fail chan<- error){
		"another Read sees the end first": func(ctx *manual, r *ctxshutdown.Reader, _ chan<- error) {
			ctx.end()
			readOnce(r)
		},
		"another Read sees it first, in io.Copy": func(ctx *manual, r *ctxshutdown.Reader, _ chan<- error) {
			ctx.end()
			r.WriteTo(io.Discard)
		},
		"another Read fails before": func(ctx *manual, r *ctxshutdown.Reader, fail chan<- error) {
			fail <- errCause
			synctest.Wait()
			ctx.end()
		},
		"all others fail before": func(ctx *manual, r *ctxshutdown.Reader, fail chan<- error) {
			for range 3 {
				fail <- errCause
			}
			synctest.Wait()
			ctx.end()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, conn := net.Pipe()
				defer client.Close()
				fail := make(chan error)
				src := failing{conn, fail}
				ctx := newManual(t.Context())
				r := ctxshutdown.NewReader(ctx, src, ctxshutdown.Guarded())
				var all []<-chan result
				for range 4 {
					all = append(all, reading(r))
				}
				synctest.Wait()
				happens(ctx, r, fail)
				ctx.tell()
				for _, got := range all {
					if got := await(t, got); got != atEOF && got.Err != errCause {
						t.Errorf("Read: %v", got)
					}
				}
				synctest.Wait()
				brings(t, conn, client, "the deadline is gone")
			})
		})
	}
}

// failing is a connection of which a Read fails when it is told to, as those of a UDP socket do one by one.
type failing struct {
	net.Conn
	fail chan error
}

func (f failing) Read(p []byte) (int, error) {
	over := make(chan result, 1)
	go func() {
		n, err := f.Conn.Read(p)
		over <- result{N: n, Err: err}
	}()
	select {
	case got := <-over:
		return got.N, got.Err
	case err := <-f.fail:
		return 0, err
	}
}

// Under the race detector: every byte comes once, whoever reads it, and everybody returns.
func TestReader_ManyReadWhileItIsStopped(t *testing.T) {
	for name, opts := range map[string][]ctxshutdown.InterruptOption{
		"woken": nil, "by helper": {ctxshutdown.Detached(), ctxshutdown.Guarded()},
	} {
		t.Run(name, func(t *testing.T) {
			onTiers(t, func(t *testing.T, ctx context.Context, end func()) {
				client, server := connections(t, "tcp")
				defer client.Close()
				defer server.Close()
				var src io.Reader = server
				if opts != nil {
					src = struct{ io.Reader }{server}
				}
				r := ctxshutdown.NewReader(ctx, src, opts...)
				total := make(chan int, 8)
				for range cap(total) {
					go func() {
						n := 0
						for {
							got := readOnce(r)
							r.CanWake()
							n += got.N
							if got.Err != nil {
								total <- n
								return
							}
						}
					}()
				}
				const sent = 100 << 10
				io.CopyN(client, zeros{}, sent/2)
				end()
				io.CopyN(client, zeros{}, sent/2)
				client.Close()
				n := 0
				for range cap(total) {
					n += await(t, total)
				}
				rest, err := io.ReadAll(r.Rest())
				if n += len(rest); n != sent || err != nil {
					t.Errorf("%d of %d bytes, %v", n, sent, err)
				}
			})
		})
	}
}

// Close has a blocked Read return where a stop would, and does no more.
func TestReader_CloseWhileItReads(t *testing.T) {
	closedError := result{Err: os.ErrClosed}
	for name, wrap := range map[string]func(conn net.Conn) (io.Reader, []ctxshutdown.InterruptOption){
		"woken": func(conn net.Conn) (io.Reader, []ctxshutdown.InterruptOption) { return conn, nil },
		"by helper": func(conn net.Conn) (io.Reader, []ctxshutdown.InterruptOption) {
			return struct{ io.Reader }{conn}, []ctxshutdown.InterruptOption{ctxshutdown.Detached()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
				client, conn := net.Pipe()
				defer client.Close()
				src, opts := wrap(conn)
				r := ctxshutdown.NewReader(ctx, src, opts...)
				first, second := reading(r), reading(r)
				synctest.Wait()
				for range 2 {
					if err := r.Close(); err != nil {
						t.Errorf("Close: %v", err)
					}
				}
				wantResult(t, "a Read that was blocked", closedError, <-first)
				wantResult(t, "another", closedError, <-second)
				wantResult(t, "the next Read", closedError, readOnce(r))
				if n, err := io.Copy(io.Discard, r); n != 0 || !errors.Is(err, os.ErrClosed) {
					t.Errorf("io.Copy: %d, %v", n, err)
				}
				end()
				wantResult(t, "Read after the stop", closedError, readOnce(r))
				if r.Stopped() {
					t.Error("Stopped by its Close")
				}
				brings(t, r.Rest(), client, "one")
				brings(t, r.Rest(), client, "two")
			})
		})
	}
	t.Run("at the boundary", func(t *testing.T) {
		inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
			src, w := dull()
			r := ctxshutdown.NewReader(ctx, src)
			got := reading(r)
			synctest.Wait()
			r.Close()
			io.WriteString(w, "bytes")
			wantResult(t, "the Read that was blocked", data("bytes"), <-got)
			wantResult(t, "the next Read", closedError, readOnce(r))
		})
	})
	t.Run("after the stop", func(t *testing.T) {
		inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
			r := ctxshutdown.NewReader(ctx, fedPipe(t, "bytes"))
			end()
			wantResult(t, "Read", atEOF, readOnce(r))
			r.Close()
			wantResult(t, "Read after Close", closedError, readOnce(r))
			if !r.Stopped() {
				t.Error("not Stopped any more")
			}
			wantResult(t, "Rest", data("bytes"), readOnce(r.Rest()))
			readOnce(r.Rest())
		})
	})
}

// A flight is what a source returns to the helper after the stop.
func TestDetached_RestBringsTheReadInFlight(t *testing.T) {
	for _, test := range []struct {
		name   string
		flight func(p []byte) (int, error)
		want   []result // and then "next", from the source
		panics any
	}{
		{"bytes", func(p []byte) (int, error) { return copy(p, "0123456789"), nil }, []result{data("0123456789")}, nil},
		{"bytes and the end", func(p []byte) (int, error) { return copy(p, "bytes"), io.EOF }, []result{{"bytes", 5, io.EOF}}, nil},
		{"bytes and an error", func(p []byte) (int, error) { return copy(p, "bytes"), errCause }, []result{{"bytes", 5, errCause}}, nil},
		{"the end", func(p []byte) (int, error) { return 0, io.EOF }, []result{atEOF}, nil},
		{"an error", func(p []byte) (int, error) { return 0, errCause }, []result{{Err: errCause}}, nil},
		{"nothing", func(p []byte) (int, error) { return 0, nil }, []result{{}}, nil},
		{"a panic", func(p []byte) (int, error) { panic(errCause) }, nil, errCause},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
				let, reads := make(chan struct{}), 0
				src := readerFunc(func(p []byte) (int, error) {
					if reads++; reads > 1 {
						return copy(p, "next"), nil
					}
					<-let
					return test.flight(p)
				})
				r := ctxshutdown.NewReader(ctx, src, ctxshutdown.Detached())
				got := reading(r)
				synctest.Wait()
				end()
				wantResult(t, "Read", atEOF, <-got)
				rest := r.Rest()
				if n, err := rest.Read(nil); n != 0 || err != nil {
					t.Errorf("Read of nothing: %d, %v", n, err)
				}
				close(let)
				if test.panics != nil {
					func() {
						defer func() {
							if v := recover(); v != test.panics {
								t.Errorf("recovered %v, want %v", v, test.panics)
							}
						}()
						readOnce(rest)
						t.Error("no panic")
					}()
				}
				for _, want := range test.want {
					wantResult(t, "Rest", want, readOnce(rest))
				}
				for range 2 {
					wantResult(t, "the source", data("next"), readOnce(rest))
				}
				if got := readOnce(r.Rest()); reads != 4 || got != data("next") {
					t.Errorf("%d Reads of the source, want 4: %v", reads, got)
				}
			})
		})
	}
}

// The next owner may have less room than the Read that was given up.
func TestDetached_RestInSmallReads(t *testing.T) {
	for _, size := range []int{1, 3, 7, 100} {
		inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
			src, w := dull()
			r := ctxshutdown.NewReader(ctx, src, ctxshutdown.Detached())
			got := reading(r)
			synctest.Wait()
			end()
			<-got
			go func() {
				io.WriteString(w, "what was in flight")
				io.WriteString(w, ", and then the source")
				w.Close()
			}()
			rest := r.Rest()
			text, p := "", make([]byte, size)
			for {
				n, err := rest.Read(p)
				text += string(p[:n])
				if err != nil {
					break
				}
			}
			if diff := cmp.Diff("what was in flight, and then the source", text); diff != "" {
				t.Errorf("in Reads of %d (-want +got):\n%s", size, diff)
			}
		})
	}
}

// What the helper brings while nobody reads is kept, be it stopped or not.
func TestDetached_NeverReadsAhead(t *testing.T) {
	inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
		src := strings.NewReader("0123456789")
		r := ctxshutdown.NewReader(ctx, src, ctxshutdown.Detached())
		for _, size := range []int{1, 0, 3, 2} {
			p := make([]byte, size)
			left := src.Len()
			n, err := r.Read(p)
			synctest.Wait()
			if n != size || err != nil || left-src.Len() != size {
				t.Errorf("Read of %d: %d, %v, and the source has given %d", size, n, err, left-src.Len())
			}
		}
		end()
		wantResult(t, "Read", atEOF, readOnce(r))
		wantResult(t, "Rest", data("6789"), readOnce(r.Rest()))
	})
}

// Readers around Readers, each with a part of the scope's life.
func TestReader_AroundAReader(t *testing.T) {
	inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
		client, conn := net.Pipe()
		defer client.Close()
		outer := ctxshutdown.NewReader(ctx, conn)
		inner := ctxshutdown.NewReader(t.Context(), outer)
		got := reading(inner)
		synctest.Wait()
		end()
		wantResult(t, "Read", atEOF, <-got)
		if !outer.Stopped() || inner.Stopped() {
			t.Errorf("Stopped: %v for the one that was, %v for the one that was not", outer.Stopped(), inner.Stopped())
		}
		brings(t, conn, client, "bytes")

		first, cancel := ctxshutdown.WithCancel(t.Context())
		inner = ctxshutdown.NewReader(first, ctxshutdown.NewReader(t.Context(), conn))
		got = reading(inner)
		synctest.Wait()
		cancel()
		wantResult(t, "woken through a Reader", atEOF, <-got)
		brings(t, inner.Rest(), client, "bytes")
	})
}
