package lspconn

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// A Process is a server whose messages another library exchanges, such as
// github.com/sourcegraph/jsonrpc2. It does the rest of what a [Conn] does: it starts the server,
// and ends the server and all processes that the server has started by the deadline, with a report.
//
//	server, err := lspconn.StartProcess(ctx, lspconn.Server{Command: []string{"gopls"}})
//	rpc := jsonrpc2.NewConn(ctx, jsonrpc2.NewBufferedStream(server.Stream(), jsonrpc2.VSCodeObjectCodec{}), handler)
//	server.OnClose(func(ctx context.Context) error {
//		if err := rpc.Call(ctx, "shutdown", nil, nil); err != nil {
//			return err
//		}
//		return rpc.Notify(ctx, "exit", nil)
//	})
//	report, err := server.Close(ctx)
//
// The methods may be called concurrently.
type Process struct {
	conn   *Conn
	stream *processStream
}

// StartProcess starts a server without sending it a message. Of the [Server] it uses Name, Command,
// Dir, Env, Dial, CloseTimeout and Logger. As with [Start], the process has a scope whose parent is
// the scope in ctx, and is closed when ctx ends.
//
// If StartProcess returns an error, no process is running. The error wraps the errors of packages
// os/exec and os.
func StartProcess(ctx context.Context, server Server) (*Process, error) {
	return newProcess(ctx, server, startProcess)
}

func newProcess(ctx context.Context, server Server, startProcess func(Server) (serverProcess, error)) (*Process, error) {
	c, err := newConn(ctx, server, startProcess, nil)
	if err != nil {
		return nil, err
	}
	c.external = &externalProtocol{}
	c.state = Ready
	close(c.initialized)
	p := &Process{c, &processStream{c: c, ended: sync.OnceFunc(func() { c.inbox.end(); close(c.readDone) })}}
	go c.readStderr()
	go c.run()
	return p, nil
}

// Stream returns the server's stdout, to read from, and its stdin, to write to. Its Close closes
// stdin. Read it until it returns io.EOF, as JSON-RPC libraries do: the report waits for the end of
// the output, but no longer than the deadline. Output that has not been read by then is lost.
func (p *Process) Stream() io.ReadWriteCloser { return p.stream }

// OnClose sets the function that asks the server to exit when closing begins, which for a language
// server is the request shutdown and the notification exit. It replaces the function set before.
// Without such a function, the server is terminated at once. If the function returns an error, the
// server is terminated, too, unless it exits by itself within a twentieth of the deadline.
//
// The function is called once, even if closing begins because a parent scope is stopped. Its ctx
// ends when 60 % of the deadline have passed, when the server has exited, and by Force; it must
// return then. If 60 % of the deadline have passed, closing goes on as if the server had received
// exit. A panic in it ends the server, and is in the report as a [*PanicError].
func (p *Process) OnClose(leave func(ctx context.Context) error) {
	p.conn.mu.Lock()
	defer p.conn.mu.Unlock()
	p.conn.external.leave = leave
}

// Name returns the server's name.
func (p *Process) Name() string { return p.conn.Name() }

// Scope returns the scope of the process. It is stopped when closing begins.
func (p *Process) Scope() *ctxshutdown.Swansong { return p.conn.Scope() }

// Done returns a channel that is closed when the process has been reaped.
func (p *Process) Done() <-chan struct{} { return p.conn.Done() }

// Err returns nil until closing begins or the server exits by itself, and then the reason.
func (p *Process) Err() error { return p.conn.Err() }

// Close ends the process: [Process.OnClose] asks it to exit, stdin is closed, and SIGTERM and
// SIGKILL follow. Its deadline, its result, and what it does when ctx ends are those of
// [Conn.Close].
func (p *Process) Close(ctx context.Context) (Report, error) { return p.conn.Close(ctx) }

// Force kills the server and all processes that it has started, as [Conn.Force] does.
func (p *Process) Force(cause error) { p.conn.Force(cause) }

// An externalProtocol stands for the library that exchanges the messages of a Process.
type externalProtocol struct {
	leave func(context.Context) error // the function of OnClose; guarded by Conn.mu
}

// canLeave reports whether a function has been set by OnClose.
func (c *Conn) canLeave() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.external.leave != nil
}

// askToLeave calls the function that the user has set by OnClose. It returns nil if the server has
// been asked to exit, and errHandshake if the function did not return by the deadline.
func (c *Conn) askToLeave(deadline time.Time) error {
	c.mu.Lock()
	leave := c.external.leave
	c.mu.Unlock()
	ctx, cancel := context.WithDeadlineCause(c.scope.Work(), deadline, errHandshake)
	defer cancel()
	var err error
	returned := make(chan struct{})
	go c.catchPanic("OnClose", "", func() { err = leave(ctx) }, func(p *PanicError) {
		if p != nil {
			err = p
		}
		close(returned)
	})
	select {
	case <-returned:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.process.Exited():
		// The server has exited. If it has done so because the function of OnClose told it to, the
		// function is about to return.
		t := time.NewTimer(c.exitDelay())
		defer t.Stop()
		select {
		case <-returned:
		case <-t.C:
			return io.EOF
		}
	}
	switch {
	case err == nil:
		return nil
	case context.Cause(ctx) == errHandshake:
		return errHandshake
	}
	return fmt.Errorf("the server could not be asked to exit: %w", err)
}

// A processStream is the stream that [Process.Stream] returns. It reads the stdout of the process
// and writes to its stdin.
type processStream struct {
	c     *Conn
	ended func() // tells the connection that the user will read no more output of the server
}

func (s *processStream) Read(b []byte) (int, error) {
	n, err := s.c.process.Stdout().Read(b)
	if err != nil {
		s.ended()
	}
	return n, err
}

func (s *processStream) Write(b []byte) (int, error) { return s.c.process.Stdin().Write(b) }

func (s *processStream) Close() error {
	s.ended()
	return s.c.process.Stdin().Close()
}
