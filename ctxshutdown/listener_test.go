package ctxshutdown_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/testkit"
)

func listen(t *testing.T, network string) net.Listener {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// accepted has the two results of Accept.
type accepted struct {
	conn net.Conn
	err  error
}

//go:noinline
func acceptOnce(ln net.Listener) accepted {
	conn, err := ln.Accept()
	return accepted{conn, err}
}

func accepting(ln net.Listener) <-chan accepted {
	got := make(chan accepted, 1)
	go func() { got <- acceptOnce(ln) }()
	return got
}

func wantClosed(t *testing.T, what string, got accepted) {
	t.Helper()
	if got.conn != nil || !errors.Is(got.err, net.ErrClosed) {
		t.Errorf("%s: %v, %v; want net.ErrClosed", what, got.conn, got.err)
	}
}

func TestListener_ClosesWhenContextEnds(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			onTiers(t, func(t *testing.T, ctx context.Context, end func()) {
				inner := listen(t, network)
				ln := ctxshutdown.NewListener(ctx, inner)
				got := accepting(ln)
				client, err := net.Dial(network, inner.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer client.Close()
				before := await(t, got)
				if before.err != nil {
					t.Fatalf("Accept: %v", before.err)
				}
				defer before.conn.Close()

				blocked := accepting(ln)
				awaitState(t, "acceptOnce", "IO wait")
				end()
				wantClosed(t, "the Accept that was blocked", await(t, blocked))
				wantClosed(t, "the next Accept", acceptOnce(ln))
				if _, err := net.Dial(network, inner.Addr().String()); err == nil {
					t.Error("the port still accepts connections after the stop")
				}
				checkTransfer(t, before.conn, client, "an old connection goes on")
				testkit.Equal(t, "Addr", ln.Addr(), inner.Addr())
				for range 2 {
					if err := ln.Close(); err != nil {
						t.Errorf("Close after the stop: %v", err)
					}
				}
			})
		})
	}
}

// If the context has ended, Accept closes the listener, even before package context has called the
// function that closes it.
func TestListener_AcceptClosesListenerAfterStop(t *testing.T) {
	ctx := newManual(t.Context())
	inner := newFakeListener()
	ln := ctxshutdown.NewListener(ctx, inner)
	ctx.end()
	wantClosed(t, "Accept", acceptOnce(ln))
	if inner.closes != 1 || inner.accepts != 0 {
		t.Errorf("closed %d times, after %d calls to Accept; want 1, 0", inner.closes, inner.accepts)
	}
}

func TestListener_ClosesAtOnceIfContextIsDone(t *testing.T) {
	onTiers(t, func(t *testing.T, ctx context.Context, end func()) {
		end()
		inner := newFakeListener()
		ln := ctxshutdown.NewListener(ctx, inner)
		await(t, inner.closed)
		wantClosed(t, "Accept", acceptOnce(ln))
	})
}

// fakeListener is a listener whose methods return the error errGone after Close.
type fakeListener struct {
	closed          chan struct{}
	accept          func() (net.Conn, error)
	closes, accepts int
	addr            net.Addr
	err             error
	mu              sync.Mutex
}

func newFakeListener() *fakeListener {
	f := &fakeListener{closed: make(chan struct{})}
	f.accept = func() (net.Conn, error) {
		<-f.closed
		return nil, errGone
	}
	return f
}

var errGone = errors.New("the listener is gone")

func (f *fakeListener) Accept() (net.Conn, error) {
	f.mu.Lock()
	f.accepts++
	f.mu.Unlock()
	return f.accept()
}

func (f *fakeListener) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closes++; f.closes > 1 {
		return errGone
	}
	close(f.closed)
	return f.err
}

func (f *fakeListener) Addr() net.Addr { return f.addr }

func TestListener_ReturnsConnectionAcceptedDuringStop(t *testing.T) {
	onTiers(t, func(t *testing.T, ctx context.Context, end func()) {
		inner := newFakeListener()
		client, server := net.Pipe()
		inner.accept = func() (net.Conn, error) {
			end()
			<-inner.closed
			return server, nil
		}
		ln := ctxshutdown.NewListener(ctx, inner)
		got := acceptOnce(ln)
		if got.conn != server || got.err != nil {
			t.Fatalf("Accept: %v, %v; want the connection", got.conn, got.err)
		}
		checkTransfer(t, got.conn, client, "it lives")
		wantClosed(t, "the next Accept", acceptOnce(ln))
		if inner.accepts != 1 {
			t.Errorf("Accept of the inner listener was called %d times", inner.accepts)
		}
	})
}

// After the stop, every error of Accept matches both net.ErrClosed and the error of the inner
// listener. Servers end their accept loops at net.ErrClosed.
func TestListener_ErrorsMatchErrClosedAfterStop(t *testing.T) {
	inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
		for _, addr := range []net.Addr{nil, &net.UnixAddr{Name: "there", Net: "unix"}} {
			ctx, cancel := context.WithCancel(ctx)
			inner := newFakeListener()
			inner.addr = addr
			got := accepting(ctxshutdown.NewListener(ctx, inner))
			synctest.Wait()
			if addr == nil {
				cancel()
			} else {
				end()
			}
			answer := <-got
			wantClosed(t, "Accept", answer)
			if !errors.Is(answer.err, errGone) {
				t.Errorf("%v does not match the error of the inner listener", answer.err)
			}
			testkit.Equal(t, "text of the error", answer.err.Error(), "use of closed network connection: the listener is gone")
			cancel()
		}
	})
}

// Before the stop, Accept returns the errors of the inner listener unchanged. Such an error does
// not end the listener.
func TestListener_ReturnsErrorsOfInnerListenerBeforeStop(t *testing.T) {
	onTiers(t, func(t *testing.T, ctx context.Context, end func()) {
		inner := newFakeListener()
		inner.accept = func() (net.Conn, error) { return nil, errCause }
		ln := ctxshutdown.NewListener(ctx, inner, ctxshutdown.Guarded())
		s, _ := ctxshutdown.FromContext(ctx)
		guards := s.GuardCount()
		for range 3 {
			if got := acceptOnce(ln); got.err != errCause {
				t.Errorf("Accept: %v", got.err)
			}
		}
		if s.GuardCount() != guards {
			t.Error("the guard was released")
		}
		ln.Close()
	})
}

func TestListener_ClosesInnerListenerOnce(t *testing.T) {
	for name, closes := range map[string]struct {
		do    func(ln net.Listener, end func())
		first error // what the first Close by the user returns
	}{
		"Close twice":      {func(ln net.Listener, end func()) {}, errCause},
		"Close, then stop": {func(ln net.Listener, end func()) {}, errCause},
		"stop, then Close": {func(ln net.Listener, end func()) { end() }, nil},
		"stop seen by Accept, then Close": {func(ln net.Listener, end func()) {
			end()
			ln.Accept()
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubbles(t, func(t *testing.T, ctx context.Context, end func()) {
				inner := newFakeListener()
				inner.err = errCause
				ln := ctxshutdown.NewListener(ctx, inner)
				closes.do(ln, end)
				synctest.Wait()
				got := []error{ln.Close(), ln.Close()}
				end()
				synctest.Wait()
				got = append(got, ln.Close())
				if diff := cmp.Diff([]error{closes.first, nil, nil}, got, sameErrors); diff != "" || inner.closes != 1 {
					t.Errorf("closed %d times (-want +got):\n%s", inner.closes, diff)
				}
			})
		})
	}
}

func TestListener_CloseWakesAccept(t *testing.T) {
	onTiers(t, func(t *testing.T, ctx context.Context, end func()) {
		ln := ctxshutdown.NewListener(ctx, listen(t, "tcp"))
		got := accepting(ln)
		awaitState(t, "acceptOnce", "IO wait")
		ln.Close()
		wantClosed(t, "Accept", await(t, got))
		wantClosed(t, "the next Accept", acceptOnce(ln))
	})
}

func TestListener_RemovesSocketFile(t *testing.T) {
	for name, ends := range map[string]func(ln net.Listener, end func()){
		"stop":             func(_ net.Listener, end func()) { end() },
		"Close":            func(ln net.Listener, _ func()) { ln.Close() },
		"stop, then Close": func(ln net.Listener, end func()) { end(); ln.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			onTiers(t, func(t *testing.T, ctx context.Context, end func()) {
				ln := ctxshutdown.NewListener(ctx, listen(t, "unix"))
				got := accepting(ln)
				ends(ln, end)
				wantClosed(t, "Accept", await(t, got))
				if _, err := os.Stat(ln.Addr().String()); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("the socket file is still there: %v", err)
				}
			})
		})
	}
}

// When the scope is stopped, http.Server.Serve returns, and requests in flight continue.
func TestListener_StopEndsHTTPServer(t *testing.T) {
	onTiers(t, func(t *testing.T, ctx context.Context, end func()) {
		inside, let := make(chan struct{}), make(chan struct{})
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(inside)
			<-let
			io.WriteString(w, "served")
		})}
		ln := ctxshutdown.NewListener(ctx, listen(t, "tcp"))
		served := make(chan error, 1)
		go func() { served <- server.Serve(ln) }()
		answered := get(t, "http://"+ln.Addr().String())
		await(t, inside)
		end()
		if err := await(t, served); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Serve: %v", err)
		}
		close(let)
		if got := await(t, answered); got.err != nil || got.body != "served" {
			t.Errorf("the request in flight: %q, %v", got.body, got.err)
		}
		if err := server.Close(); err != nil {
			t.Errorf("Close of the server: %v", err)
		}
	})
}

// Clients connect while the scope is being stopped. Accept returns every connection that the inner
// listener has accepted.
func TestListener_StopLosesNoConnection(t *testing.T) {
	for range 50 {
		s := ctxshutdown.New(t.Context())
		inner := newFakeListener()
		queue := make(chan net.Conn)
		inner.accept = func() (net.Conn, error) {
			select {
			case c := <-queue:
				return c, nil
			case <-inner.closed:
				return nil, errGone
			}
		}
		ln := ctxshutdown.NewListener(s, inner)
		var given, taken int
		var racing sync.WaitGroup
		racing.Go(func() {
			for {
				select {
				case queue <- &net.TCPConn{}:
					given++
				case <-inner.closed:
					return
				}
				if given == 10 {
					go s.Shutdown()
				}
			}
		})
		racing.Go(func() {
			for acceptOnce(ln).err == nil {
				taken++
			}
		})
		racing.Wait()
		if given != taken {
			t.Fatalf("the inner listener accepted %d connections, and Accept returned %d", given, taken)
		}
	}
}
