package ctxshutdown_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/testkit"
)

// This file tests what happens to the deadline of a source, and what Read returns for each result
// of the source. The tests in reader_sources_test.go check how soon a Read ends for each kind of
// source.

// The test sets deadlines through the Reader before, during and after a Read that is woken.
// Afterwards the source has the deadline that was set last, or none if none was set.
func TestReader_RestoresDeadlineOfUserAfterStopHasWokenRead(t *testing.T) {
	// Times since the start of the test. Zero means not set, and a negative value removes the
	// deadline.
	type times = [3]time.Duration
	set := func(r *ctxshutdown.Reader, start time.Time, d time.Duration) {
		var at time.Time
		if d > 0 {
			at = start.Add(d)
		}
		if d != 0 && r.SetReadDeadline(at) != nil {
			panic("SetReadDeadline has failed")
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
							t.Fatal("Read does not block")
						}
						time.Sleep(time.Minute)
						end()
						wantResult(t, "Read", atEOF, <-got)
						if waited := time.Since(start); waited != time.Minute {
							t.Errorf("the Read returned after %v, want at the stop", waited)
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
							t.Errorf("the deadline of the source passed after %v, want %v", waited, want)
						}
					})
				})
			}
		}
	}
}

// slowConn is a connection whose Read returns only some time after it was woken.
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
	// On a busy machine, the Reader can set a deadline in the past more than once.
	if isPast(t) && !testkit.IsClosed(c.woken) {
		close(c.woken)
	}
	return nil
}

func TestReader_AppliesDeadlineThatUserSetsWhileStopWakesRead(t *testing.T) {
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
		last := len(conn.deadlines) - 1
		if wakes := conn.deadlines[:last]; slices.ContainsFunc(wakes, isFuture) || !conn.deadlines[last].Equal(at) {
			t.Errorf("deadlines %v, want those of wakes, in the past, and then %v", conn.deadlines, at)
		}
	})
}

func isPast(deadline time.Time) bool { return !deadline.IsZero() && deadline.Before(time.Now()) }

func isFuture(deadline time.Time) bool { return !isPast(deadline) }

// contestedConn is a connection that other code uses as well: right after the first wake, the other
// code removes the deadline that the wake has set.
type contestedConn struct {
	net.Conn
	wasWoken bool
}

func (c *contestedConn) SetReadDeadline(t time.Time) error {
	if isPast(t) && !c.wasWoken {
		c.wasWoken = true
		t = time.Time{}
	}
	return c.Conn.SetReadDeadline(t)
}

// Other code that sets a deadline on the source itself does not undo a wake.
func TestReader_StopEndsReadEvenIfOtherCodeSetsDeadline(t *testing.T) {
	inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
		client, conn := net.Pipe()
		defer client.Close()
		r := ctxshutdown.NewReader(ctx, &contestedConn{Conn: conn})
		got := reading(r)
		synctest.Wait()
		end()
		wantResult(t, "Read", atEOF, await(t, got))
		checkTransfer(t, conn, client, "the deadline is gone")
	})
}

// deafConn is a connection whose Read ignores deadlines, and returns when the channel let is
// closed.
type deafConn struct {
	net.Conn
	let       chan struct{}
	deadlines []time.Time
}

func (c *deafConn) Read(p []byte) (int, error) {
	<-c.let
	return copy(p, "data"), nil
}

func (c *deafConn) SetReadDeadline(t time.Time) error {
	c.deadlines = append(c.deadlines, t)
	return nil
}

// If a source ignores deadlines, the Reader tries to wake a blocked Read only for a limited time.
// Otherwise, in a synctest bubble, the attempts would make the clock run on for ever, and a test in
// which such a Read stays blocked would not end.
func TestReader_GivesUpWakingSourceThatIgnoresDeadlines(t *testing.T) {
	inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
		conn := &deafConn{let: make(chan struct{})}
		got := reading(ctxshutdown.NewReader(ctx, conn))
		synctest.Wait()
		end()
		time.Sleep(time.Minute)
		synctest.Wait()
		wakes := len(conn.deadlines)
		if wakes < 2 || slices.ContainsFunc(conn.deadlines, isFuture) {
			t.Errorf("deadlines %v, want several in the past", conn.deadlines)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if more := len(conn.deadlines) - wakes; more > 0 {
			t.Errorf("the Reader has woken the Read %d times more in an hour", more)
		}
		close(conn.let)
		wantResult(t, "Read", data("data"), await(t, got))
		if last := conn.deadlines[len(conn.deadlines)-1]; !last.IsZero() {
			t.Errorf("the deadline after the Read is %v, want none", last)
		}
	})
}

// A deadline that the user has set on the source itself stays until the Reader wakes a Read, or
// until a method of the Reader must set a deadline, as CanWake does.
func TestReader_KeepsDeadlineOfSourceUntilStopWakesRead(t *testing.T) {
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

// If a deadline that the user has set passes, Read returns the time-out, and the Reader does not
// end.
func TestReader_ContinuesAfterTimeout(t *testing.T) {
	inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
		client, conn := net.Pipe()
		defer client.Close()
		r := ctxshutdown.NewReader(ctx, conn)
		for range 3 {
			r.SetReadDeadline(time.Now().Add(time.Second))
			wantResult(t, "Read", result{Err: os.ErrDeadlineExceeded}, readOnce(r))
		}
		if r.Stopped() {
			t.Error("Stopped is true after a time-out")
		}
		r.SetReadDeadline(time.Time{})
		checkTransfer(t, r, client, "bytes")
		got := reading(r)
		synctest.Wait()
		end()
		wantResult(t, "the Read that was blocked", atEOF, <-got)
	})
}

func TestReader_SetReadDeadlineFailsIfUnsupported(t *testing.T) {
	for name, src := range map[string]io.Reader{"no method": strings.NewReader(""), "it refuses": refusing{strings.NewReader("")}} {
		r := ctxshutdown.NewReader(t.Context(), src)
		if err := r.SetReadDeadline(time.Now()); !errors.Is(err, os.ErrNoDeadline) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// If a wake makes the source return bytes together with a time-out, Read returns these bytes.
func TestReader_ReturnsBytesThatSourceReturnsWithTimeout(t *testing.T) {
	onTiers(t, func(t *testing.T, ctx context.Context, end func()) {
		conn := &deadlined{readerFunc(func(p []byte) (int, error) {
			end()
			return copy(p, "bytes"), os.ErrDeadlineExceeded
		})}
		r := ctxshutdown.NewReader(ctx, conn)
		wantResult(t, "Read", data("bytes"), readOnce(r))
		wantResult(t, "the next Read", atEOF, readOnce(r))
		if !r.Stopped() {
			t.Error("Stopped is false")
		}
	})
}

// deadlined is a source that accepts read deadlines and ignores them.
type deadlined struct{ io.Reader }

func (*deadlined) SetReadDeadline(time.Time) error { return nil }

// If a Read is blocked when the context ends, it returns the result of the source unchanged, even
// if that is an error or io.EOF.
func TestReader_ReadBlockedAtStopReturnsResultOfSourceUnchanged(t *testing.T) {
	for _, want := range []result{
		data("bytes"), {"bytes", 5, io.EOF}, {"bytes", 5, errCause}, {"", 0, io.EOF}, {"", 0, errCause}, {"", 0, nil},
		{"bytes", 5, io.ErrUnexpectedEOF}, {"", 0, net.ErrClosed},
	} {
		t.Run(fmt.Sprintf("%q and %v", want.Text, want.Err), func(t *testing.T) {
			for name, wrap := range map[string]func(io.Reader) io.Reader{
				"unwakeable":     func(r io.Reader) io.Reader { return r },
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
						t.Errorf("%s: Stopped is true after a result of the source", name)
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

// A source panics and so ends a Read. After that the end of the context must not set a deadline on
// the source, because no Read is in progress.
func TestReader_SetsNoDeadlineAfterPanicOfSource(t *testing.T) {
	inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
		client, conn := net.Pipe()
		defer conn.Close()
		r := ctxshutdown.NewReader(ctx, &onceInstead{Conn: conn, read: func() (int, error) { panic(errCause) }})
		func() {
			defer func() {
				if p := recover(); p != errCause {
					t.Errorf("Read panics with %v, want %v", p, errCause)
				}
			}()
			readOnce(r)
		}()
		checkTransfer(t, r, client, "the next Read")
		end()
		synctest.Wait()
		checkTransfer(t, conn, client, "next")
	})
}

// An error of the source unregisters the Reader from its context. The next Read registers it again,
// so the end of the context still wakes that Read.
func TestReader_StopWakesReadEvenIfEarlierReadFailed(t *testing.T) {
	inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
		client, conn := net.Pipe()
		defer client.Close()
		r := ctxshutdown.NewReader(ctx, &onceInstead{Conn: conn, read: func() (int, error) { return 0, errCause }})
		wantResult(t, "Read", result{"", 0, errCause}, readOnce(r))
		got := reading(r)
		synctest.Wait()
		if len(got) > 0 {
			t.Fatal("Read does not block")
		}
		end()
		wantResult(t, "the next Read", atEOF, <-got)
	})
}

// onceInstead is a connection whose first Read calls the function read. Each later Read reads from
// the wrapped connection.
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

// The context ends after Read has checked it and before Read reads from the source. The read from
// the source must be woken.
func TestReader_StopJustBeforeSourceReadWakesRead(t *testing.T) {
	for _, readBefore := range []bool{false, true} {
		for check := range int32(3) {
			t.Run(fmt.Sprintf("read before %v, at check %d", readBefore, check+1), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					client, conn := net.Pipe()
					defer conn.Close()
					ctx := &endingAt{manual: newManual(t.Context())}
					r := ctxshutdown.NewReader(ctx, conn)
					if readBefore {
						checkTransfer(t, r, client, "bytes")
					}
					ctx.remaining.Store(check + 1)
					got := reading(r)
					time.Sleep(time.Minute)
					ctx.endNow() // if Read called Err too rarely to end ctx, end ctx now that Read is blocked
					wantResult(t, "Read", atEOF, <-got)
					checkTransfer(t, conn, client, "next")
				})
			})
		}
	}
}

// endingAt is a context that ends during a chosen call of its method Err. That call still returns
// nil. The functions registered by AfterFunc have run when Err returns.
type endingAt struct {
	*manual
	remaining atomic.Int32 // the context ends during the call of Err that makes this 0
}

func (ctx *endingAt) Err() error {
	err := ctx.manual.Err()
	if ctx.remaining.Add(-1) == 0 {
		ctx.endNow()
	}
	return err
}

func (ctx *endingAt) endNow() {
	ctx.remaining.Store(0)
	ctx.end()
	ctx.runAfterFuncs()
	synctest.Wait()
}

// Several goroutines read from one source. All of these Reads return when the context ends, even if
// one Read notices the end of the context before the AfterFunc that wakes the others runs, or if a
// Read has failed before.
func TestReader_WakesAllConcurrentReads(t *testing.T) {
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
				ctx.runAfterFuncs()
				for _, got := range all {
					if got := await(t, got); got != atEOF && got.Err != errCause {
						t.Errorf("Read: %v", got)
					}
				}
				synctest.Wait()
				checkTransfer(t, conn, client, "the deadline is gone")
			})
		})
	}
}

// failing is a connection whose Read returns each error that is sent to the channel fail. A UDP
// socket returns such errors for ICMP messages.
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

// Several goroutines read from one source while the scope is stopped. All of them return, and each
// byte is returned to one of them or by Rest.
func TestReader_ConcurrentReadsLoseNoByteDuringStop(t *testing.T) {
	for name, opts := range map[string][]ctxshutdown.InterruptOption{
		"woken": nil, "detached": {ctxshutdown.Detached(), ctxshutdown.Guarded()},
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
					t.Errorf("%d of %d bytes were read; %v", n, sent, err)
				}
			})
		})
	}
}

// When a Reader is closed, a blocked Read returns just as it would after a stop. Stopped of the
// Reader stays false.
func TestReader_CloseWakesBlockedRead(t *testing.T) {
	closedError := result{Err: os.ErrClosed}
	for name, wrap := range map[string]func(conn net.Conn) (io.Reader, []ctxshutdown.InterruptOption){
		"woken": func(conn net.Conn) (io.Reader, []ctxshutdown.InterruptOption) { return conn, nil },
		"detached": func(conn net.Conn) (io.Reader, []ctxshutdown.InterruptOption) {
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
					t.Error("Stopped is true after Close")
				}
				checkTransfer(t, r.Rest(), client, "one")
				checkTransfer(t, r.Rest(), client, "two")
			})
		})
	}
	t.Run("at the boundary", func(t *testing.T) {
		inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
			src, w := unwakeable()
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
				t.Error("Stopped is false after Close of a stopped Reader")
			}
			wantResult(t, "Rest", data("bytes"), readOnce(r.Rest()))
			readOnce(r.Rest())
		})
	})
}

// The source returns a result to the background goroutine after the scope has been stopped. Rest
// returns that result first, and then reads from the source.
func TestDetached_RestReturnsBytesOfReadPendingAtStop(t *testing.T) {
	for _, test := range []struct {
		name   string
		flight func(p []byte) (int, error)
		want   []result // the first results of Rest; the next one is "next", which Rest reads from the source
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
					t.Errorf("Read into an empty buffer: %d, %v", n, err)
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
						t.Error("Read does not panic")
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

// If a buffer is too small for the result of the background read, Rest returns the result in
// pieces.
func TestDetached_RestReturnsAllBytesToReadsWithSmallBuffer(t *testing.T) {
	for _, size := range []int{1, 3, 7, 100} {
		inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
			src, w := unwakeable()
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
			testkit.Equal(t, fmt.Sprintf("in Reads of %d", size), text, "what was in flight, and then the source")
		})
	}
}

// A detached Reader never reads more bytes from its source than its caller has asked for.
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
				t.Errorf("Read of %d: %d, %v, and %d bytes were read from the source", size, n, err, left-src.Len())
			}
		}
		end()
		wantResult(t, "Read", atEOF, readOnce(r))
		wantResult(t, "Rest", data("6789"), readOnce(r.Rest()))
	})
}

// A Reader reads from another Reader. Each of the two can be stopped by a context of its own.
func TestReader_CanWrapAnotherReader(t *testing.T) {
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
			t.Errorf("Stopped is %v for the Reader that was stopped, %v for the other one", outer.Stopped(), inner.Stopped())
		}
		checkTransfer(t, conn, client, "bytes")

		first, cancel := ctxshutdown.WithCancel(t.Context())
		inner = ctxshutdown.NewReader(first, ctxshutdown.NewReader(t.Context(), conn))
		got = reading(inner)
		synctest.Wait()
		cancel()
		wantResult(t, "woken through a Reader", atEOF, <-got)
		checkTransfer(t, inner.Rest(), client, "bytes")
	})
}
