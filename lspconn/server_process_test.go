package lspconn_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/lspconn"
)

// A rawClient exchanges messages over the stream of a Process, as another JSON-RPC library does. It
// reads until the stream ends.
type rawClient struct {
	stream   io.ReadWriteCloser
	messages chan []byte // closed when the stream has ended
}

func newRawClient(p *lspconn.Process) *rawClient {
	c := &rawClient{p.Stream(), make(chan []byte, 10)}
	go func() {
		defer close(c.messages)
		for next := lspconn.Frames(c.stream); ; {
			body, err := next()
			if err != nil {
				return
			}
			c.messages <- body
		}
	}()
	return c
}

// call sends a request and waits for a message, which is its response.
func (c *rawClient) call(id int64, method string) error {
	if _, err := c.stream.Write(lspconn.Frame(id, method, []byte("{}"))); err != nil {
		return err
	}
	if _, ok := <-c.messages; !ok {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// leave asks the server to exit.
func (c *rawClient) leave(context.Context) error {
	if err := c.call(2, "shutdown"); err != nil {
		return err
	}
	_, err := c.stream.Write(lspconn.Frame(-1, "exit", nil))
	return err
}

// startRaw starts a Process with a fake server, which has answered initialize.
func startRaw(t *testing.T, ctx context.Context, b behaviours) (*lspconn.Process, *rawClient) {
	t.Helper()
	p, err := lspconn.StartProcessWith(ctx, lspconn.Server{Name: "here", Command: []string{"here"}}, serveInProcess(b))
	if err != nil {
		t.Fatal(err)
	}
	client := newRawClient(p)
	if err := client.call(1, "initialize"); err != nil {
		t.Fatal(err)
	}
	return p, client
}

// A Process whose messages another library exchanges is closed by the same steps and deadlines as a
// Conn.
func TestProcess_ReportsHowServerEnded(t *testing.T) {
	type onClose = func(*rawClient) func(context.Context) error
	leave := func(c *rawClient) func(context.Context) error { return c.leave }
	for _, test := range []struct {
		name    string
		b       behaviours
		onClose onClose
		outcome lspconn.Outcome
		phases  phases
		says    string
	}{
		{"obeys shutdown and exit", behaviours{}, leave, lspconn.Clean, phases{}, ""},
		{"takes EOF for exit", behaviours{Exit: "ignore"}, leave, lspconn.Clean, phases{Leave: 2 * time.Second}, ""},
		{"ignores exit and EOF", behaviours{Exit: "ignore", EOF: "ignore"}, leave, lspconn.Terminated, phases{Leave: 8 * time.Second}, ""},
		{"ignores SIGTERM too", behaviours{Exit: "ignore", EOF: "ignore", IgnoreTerm: true}, leave, lspconn.Killed, phases{Leave: 9 * time.Second}, ""},
		{"exits on shutdown", behaviours{Shutdown: "exit", Code: 3}, leave, lspconn.ExitedEarly, phases{}, "exit code 3"},
		{"OnClose not set", behaviours{EOF: "ignore"}, nil, lspconn.Terminated, phases{}, ""},
		{"OnClose fails", behaviours{EOF: "ignore"}, func(*rawClient) func(context.Context) error {
			return func(context.Context) error { return errForce }
		}, lspconn.Terminated, phases{Leave: time.Second / 2}, errForce.Error()},
		{"OnClose waits for its context", behaviours{}, func(*rawClient) func(context.Context) error {
			return func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		}, lspconn.HandshakeTimeout, phases{Handshake: 6 * time.Second, Leave: time.Second}, "did not answer shutdown"},
		{"OnClose panics", behaviours{EOF: "ignore"}, func(*rawClient) func(context.Context) error {
			return func(context.Context) error { panic("at the disco") }
		}, lspconn.Terminated, phases{Leave: time.Second / 2}, "panic in Process.OnClose: at the disco"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, client := startRaw(t, t.Context(), test.b)
				if test.onClose != nil {
					p.OnClose(test.onClose(client))
				}
				r, err := p.Close(context.Background())
				if err != nil {
					t.Error(err)
				}
				testkit.Equal(t, "outcome", r.Outcome, test.outcome)
				testkit.Equal(t, "time", phases{r.Drain, r.Handshake, r.Leave}, test.phases)
				if (r.Failure == nil) != (test.says == "") || r.Failure != nil && !strings.Contains(r.Failure.Error(), test.says) {
					t.Errorf("failure %v, want %q", r.Failure, test.says)
				}
			})
		})
	}
}

// A stop of the parent scope asks the server to exit, and waits until its process has ended.
func TestProcess_ClosesWhenParentScopeStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program := ctxshutdown.New(context.Background(), ctxshutdown.WithName("editor"))
		p, client := startRaw(t, program, behaviours{})
		p.OnClose(client.leave)
		if err := program.Shutdown().Wait(t.Context()); err != nil {
			t.Error(err)
		}
		r, err := p.Close(t.Context())
		if err != nil || r.Outcome != lspconn.Clean {
			t.Errorf("%v, %v; want Clean", r, err)
		}
		if !errors.Is(p.Err(), lspconn.ErrClosing) {
			t.Errorf("Err returned %v", p.Err())
		}
	})
}

// Force kills the server without calling OnClose.
func TestProcess_ForceKillsServerWithoutCallingOnClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := startRaw(t, t.Context(), behaviours{Shutdown: "never", EOF: "ignore"})
		p.OnClose(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		p.Force(errForce)
		r, err := p.Close(t.Context())
		if err != nil || r.Outcome != lspconn.Killed || !errors.Is(r.Failure, errForce) {
			t.Errorf("%v, %v; want a killed server, with the cause", r, err)
		}
		testkit.Equal(t, "time", r.Total, time.Duration(0))
	})
}

// A real server that crashes is noticed and reported, and all of its output can be read.
func TestProcess_ReportsCrash(t *testing.T) {
	text := strings.Repeat("no message\n", 1000)
	p, err := lspconn.StartProcess(t.Context(), fake(role{Text: text, Behaviour: behaviours{Code: 4, Stderr: "no license\n"}}))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(p.Stream())
	if err != nil || string(got) != text {
		t.Errorf("read %d bytes and %v, want %d bytes", len(got), err, len(text))
	}
	<-p.Done()
	contains(t, p.Err(), "exited unexpectedly: exit code 4", "no license")
	r, err := p.Close(t.Context())
	if err != nil || r.Outcome != lspconn.ExitedEarly || r.Exit.Code != 4 {
		t.Errorf("%v, %v; want ExitedEarly with code 4", r, err)
	}
}
