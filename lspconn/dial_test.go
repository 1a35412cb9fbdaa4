package lspconn_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/lspconn"
	"github.com/swansong-go/swansong/lspconn/internal/fakelsp"
)

// socketPath returns a path for a socket. It is short, because the system limits its length.
func socketPath(t *testing.T) string {
	dir, err := os.MkdirTemp("", "lsp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// dialUntil connects to a server that may not listen yet.
func dialUntil(ctx context.Context, network, address string) (io.ReadWriteCloser, error) {
	for {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil {
			return conn, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(time.Millisecond): // no event announces that the server listens
		}
	}
}

// Messages are exchanged over the stream of Dial, and the server is closed like a server on stdio.
// docs/internals/lspconn.md#sockets
func TestDial_ExchangesMessagesOverSocket(t *testing.T) {
	path := socketPath(t)
	server := fake(role{Listen: path})
	server.Dial = func(ctx context.Context) (io.ReadWriteCloser, error) { return dialUntil(ctx, "unix", path) }
	conn := startReady(t, server)
	testkit.Equal(t, "answer", call(t, conn, "echo", "[1]"), "[1]")
	testkit.Equal(t, "outcome", mustClose(t, conn).Outcome, lspconn.Clean)
}

// If the function Server.Dial returns an error or a nil stream, or panics, the connection fails
// with that error, and the process of the server is ended. docs/internals/lspconn.md#sockets
func TestDial_ConnectionFailsIfDialFunctionFails(t *testing.T) {
	refused := errors.New("refused")
	for _, test := range []struct {
		name string
		dial func(context.Context) (io.ReadWriteCloser, error)
		want func(error) bool
	}{
		{"an error", func(context.Context) (io.ReadWriteCloser, error) { return nil, refused },
			func(err error) bool { return errors.Is(err, refused) }},
		{"nothing", func(context.Context) (io.ReadWriteCloser, error) { return nil, nil },
			func(err error) bool { return err != nil }},
		{"a panic", func(context.Context) (io.ReadWriteCloser, error) { panic(refused) },
			func(err error) bool { return errors.As(err, new(*lspconn.PanicError)) && errors.Is(err, refused) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := fake(role{Listen: socketPath(t)})
			server.Dial = test.dial
			conn := start(t, server)
			if _, err := conn.Ready(t.Context()); !test.want(err) || !errors.Is(err, lspconn.ErrClosing) {
				t.Errorf("Ready returned %v", err)
			}
			<-conn.Done()
			testkit.Equal(t, "state", conn.State(), lspconn.Failed)
		})
	}
}

// If Dial does not return in time, for example because the server does not listen, the error says
// that Dial has not returned, and not that the server is silent. docs/internals/lspconn.md#sockets
func TestDial_ErrorSaysThatDialHasNotReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := lspconn.Server{InitializeTimeout: time.Second, Dial: func(ctx context.Context) (io.ReadWriteCloser, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		conn, _ := startInProcess(t, t.Context(), server, behaviours{})
		_, err := conn.Ready(t.Context())
		contains(t, err, "Server.Dial has not returned within 1s")
		mustClose(t, conn)
	})
}

// The context of Dial ends when the connection closes, and when the server exits.
// docs/internals/lspconn.md#sockets
func TestDial_ContextEndsWhenServerExitsOrConnectionCloses(t *testing.T) {
	for _, name := range []string{"close", "exit"} {
		t.Run(name, func(t *testing.T) {
			dialling := make(chan struct{})
			server := fake(role{Listen: socketPath(t)})
			if name == "exit" {
				server = fake(role{Text: "no socket"})
			}
			server.Dial = func(ctx context.Context) (io.ReadWriteCloser, error) {
				close(dialling)
				<-ctx.Done()
				return nil, ctx.Err()
			}
			conn := start(t, server)
			<-dialling
			if name == "exit" {
				var exited *lspconn.ExitError
				if _, err := conn.Ready(t.Context()); !errors.As(err, &exited) {
					t.Errorf("Ready returned %v, want an ExitError", err)
				}
			}
			mustClose(t, conn)
		})
	}
}

// A proxied is a stream whose other end stays open when the server has exited, as a proxy may do.
type proxied struct {
	*net.UnixConn
	ended chan error // receives the error with which reading ended
}

func (p proxied) Read(b []byte) (int, error) {
	n, err := p.UnixConn.Read(b)
	if err != nil {
		p.ended <- err
	}
	return n, err
}

// When the process has ended, reading its stream ends, too, even if a proxy keeps the stream open.
// So closing does not take the whole deadline. docs/internals/lspconn.md#sockets
func TestDial_StreamEndsWhenProcessEndsEvenIfProxyKeepsItOpen(t *testing.T) {
	path := socketPath(t)
	server := fake(role{Listen: path})
	ended := make(chan error, 2)
	proxy, err := net.Listen("unix", socketPath(t))
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	server.Dial = func(ctx context.Context) (io.ReadWriteCloser, error) {
		behind, err := dialUntil(ctx, "unix", path)
		if err != nil {
			return nil, err
		}
		ours, err := net.Dial("unix", proxy.Addr().String())
		if err != nil {
			return nil, err
		}
		theirs, err := proxy.Accept()
		if err != nil {
			return nil, err
		}
		// The proxy keeps its end open until the test has ended.
		t.Cleanup(func() { theirs.Close() })
		go io.Copy(behind, theirs)
		go io.Copy(theirs, behind)
		return proxied{ours.(*net.UnixConn), ended}, nil
	}
	conn := startReady(t, server)
	testkit.Equal(t, "answer", call(t, conn, "echo", "[1]"), "[1]")
	testkit.Equal(t, "outcome", mustClose(t, conn).Outcome, lspconn.Clean)
	if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("reading ended with %v, want the error of a deadline that is set when the process has ended", err)
	}
}

// A lateReader is a stream whose first Read begins 150 ms after a deadline has been set, as if the
// goroutine that calls Read did not run meanwhile.
type lateReader struct {
	net.Conn
	limited    chan struct{}
	limit, run sync.Once
}

func (l *lateReader) SetReadDeadline(t time.Time) error {
	defer l.limit.Do(func() { close(l.limited) })
	return l.Conn.SetReadDeadline(t)
}

func (l *lateReader) Read(b []byte) (int, error) {
	l.run.Do(func() {
		<-l.limited
		time.Sleep(150 * time.Millisecond)
	})
	return l.Conn.Read(b)
}

// The last message of a server that has exited is delivered, even if it is read only after the
// deadline that is set at the exit. docs/internals/lspconn.md#sockets
func TestDial_DeliversLastMessageOfServerThatHasExited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		go io.Copy(io.Discard, theirs)
		go io.WriteString(theirs, "Content-Length: 33\r\n\r\n"+`{"jsonrpc":"2.0","method":"last"}`)
		received := make(chan string, 1)
		conn, process := startInProcess(t, t.Context(), lspconn.Server{
			Dial: func(context.Context) (io.ReadWriteCloser, error) {
				return &lateReader{Conn: ours, limited: make(chan struct{})}, nil
			},
			OnNotify: func(_ context.Context, method string, _ json.RawMessage) { received <- method },
		}, fakelsp.Behaviour{})
		synctest.Wait()
		process.signal(syscall.SIGKILL)
		<-conn.Done()
		mustClose(t, conn)
		testkit.Equal(t, "notifications", len(received), 1)
	})
}

// Closing a connection does not wait for a function Dial that ignores its context.
// docs/internals/lspconn.md#sockets
func TestDial_FunctionThatIgnoresContextDoesNotDelayClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := make(chan struct{})
		conn, _ := startInProcess(t, t.Context(), lspconn.Server{Dial: func(context.Context) (io.ReadWriteCloser, error) {
			<-never
			return nil, errors.New("too late")
		}}, fakelsp.Behaviour{})
		synctest.Wait()
		r := mustClose(t, conn)
		// The server exits when its input is closed. That may be before or after SIGTERM is sent.
		if r.Outcome != lspconn.Terminated && r.Outcome != lspconn.ExitedEarly {
			t.Errorf("outcome %v", r.Outcome)
		}
		testkit.Equal(t, "total", r.Total, time.Duration(0))
		close(never)
	})
}
