package lspconn

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// A Conn is a connection to a language server that it has started. [State] lists its states and
// transitions. A message that was accepted before the connection began to close is written or fails
// with an error; afterwards no message is accepted.
//
// The methods may be called concurrently. In the terms of the Go memory model, a call of Call
// synchronizes before the delivery of its response.
type Conn struct {
	// Invariants:
	//
	//   - The guards of the scope decide which messages are accepted, atomically with the stop.
	//   - The goroutine in run makes every change of state, with one exception: if a failed
	//     connection has been reaped before Close is called, Close makes it Closed. The same
	//     goroutine ends the process.
	//   - A call stays in the map calls until it is answered. Removing and answering it are one
	//     step under mu.
	//   - All output goes through the messageWriter out, in whole messages.

	server       Server
	manager      *Manager // the manager that started the connection; nil if Start did
	scope        *ctxshutdown.Swansong
	queueScope   *ctxshutdown.Swansong // scope with one guard for each message that has not been written
	callScope    *ctxshutdown.Swansong // scope with one guard for each call without a response
	requestScope *ctxshutdown.Swansong // scope with one guard for each unanswered request of the server
	notifyScope  *ctxshutdown.Swansong // scope with one guard for each call of OnNotify
	forcing      atomic.Bool           // set when Force is called, before it stops the scope
	processGuard *ctxshutdown.Guard    // released when the server's process has been reaped
	process      serverProcess
	external     *externalProtocol // the connection of the JSON-RPC library that exchanges the messages of a Process; nil for other connections
	out          *messageWriter
	stderr       *stderrTail

	slots   chan struct{} // holds one token for each queued message that counts against QueueLimit
	pending chan struct{} // wakes the write loop, because the queue may contain messages

	inbox *inbox // delivers the messages of the server

	stopWriting func() // makes the write loop end when it has written the whole queue; further calls have no effect
	writeStop   chan struct{}
	writeDone   chan struct{} // closed when the write loop has ended
	writeErr    error         // the write that failed, or nil; set before writeDone is closed
	readDone    chan struct{} // closed when the read loop has ended
	readErr     error         // why the read loop ended; set before readDone is closed
	stderrDone  chan struct{}
	panicked    chan struct{} // closed when a callback has panicked

	initialized chan struct{} // closed when the state is no longer Initializing
	reported    chan struct{} // closed when the report is complete
	done        chan struct{} // closed when the process has been reaped and every call answered

	lastID atomic.Int64 // the id of the most recent call

	mu         sync.Mutex
	state      State
	closing    bool      // Close was called, or the scope was stopped before the connection failed
	deadline   time.Time // the deadline of closing; zero until it is known
	queue      sendQueue
	writing    bool // the write loop is running and writes the queued messages
	calls      map[int64]*call
	idleSince  time.Time       // when the time of Server.IdleTimeout last began, see restartIdle; zero without that time-out
	initResult json.RawMessage // the server's answer to initialize
	failure    error
	failedAt   time.Time
	forcedAt   time.Time // when Force was called; zero if it was not
	handshake  handshake // the result of draining the queue and of the request shutdown; zero until both are over
	exit       *Exit
	report     Report
	panic      *PanicError // the first panic of a callback

	unconfirmed error // the error of serverProcess.End if the process was not known to have ended at the deadline
}

// Start starts a language server and sends it initialize. It returns as soon as the process runs.
// Messages sent before the server has answered initialize are queued; [Conn.Ready] waits for the
// answer.
//
// The connection has a scope of its own, whose parent is the scope in ctx. The connection is closed
// when ctx ends.
//
// If Start returns an error, no process is running. The error wraps the errors of packages os/exec
// and os.
func Start(ctx context.Context, server Server) (*Conn, error) {
	return start(ctx, server, startProcess, nil)
}

func start(ctx context.Context, server Server, startProcess func(Server) (serverProcess, error), manager *Manager) (*Conn, error) {
	c, err := newConn(ctx, server, startProcess, manager)
	if err != nil {
		return nil, err
	}
	go c.readStderr()
	go c.readLoop()
	go c.run()
	return c, nil
}

// newConn starts the process of a connection, and no goroutine.
func newConn(ctx context.Context, server Server, startProcess func(Server) (serverProcess, error), manager *Manager) (*Conn, error) {
	server, err := server.withDefaults()
	if err != nil {
		return nil, err
	}
	scope, cancel := ctxshutdown.WithCancel(ctx, ctxshutdown.WithName(server.Name))
	child := func(name string) *ctxshutdown.Swansong {
		s, _ := ctxshutdown.WithCancel(scope, ctxshutdown.WithName(name))
		return s
	}
	guard, ok := child("process").TryGuard()
	if !ok {
		cancel()
		return nil, fmt.Errorf("lspconn: %s was not started: %w", label(server.key, server.Name), context.Cause(ctx))
	}
	p, err := startProcess(server)
	if err != nil {
		guard.Release()
		cancel()
		return nil, fmt.Errorf("lspconn: %s%w", server.keyPrefix(), err)
	}
	if server.Dial != nil {
		p = newDialled(scope, p, server.Dial)
	}
	c := &Conn{
		server: server, manager: manager, scope: scope,
		queueScope: child("queue"), callScope: child("calls"), requestScope: child("requests"), notifyScope: child("notifications"),
		processGuard: guard, process: p, out: newMessageWriter(p.Stdin()), stderr: newStderrTail(),
		slots: make(chan struct{}, server.QueueLimit), pending: make(chan struct{}, 1),
		writeStop: make(chan struct{}), writeDone: make(chan struct{}),
		readDone: make(chan struct{}), stderrDone: make(chan struct{}), panicked: make(chan struct{}),
		initialized: make(chan struct{}), reported: make(chan struct{}), done: make(chan struct{}),
		calls: map[int64]*call{},
	}
	c.inbox = newInbox(c)
	c.out.trace = newTracer(c, server.Trace)
	c.stopWriting = sync.OnceFunc(func() {
		c.mu.Lock()
		c.writing = false
		c.mu.Unlock()
		close(c.writeStop)
	})
	return c, nil
}

// Name returns the server's name.
func (c *Conn) Name() string { return c.server.Name }

// State returns the current state of the connection.
func (c *Conn) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Scope returns the connection's scope. Its GuardReport shows what the connection is waiting for,
// and callers may create scopes of their own below it.
func (c *Conn) Scope() *ctxshutdown.Swansong { return c.scope }

// Ready waits until the server has answered initialize and returns the result. If the connection
// closes or fails first, it returns a [*ConnError]; if ctx ends first, the cause of ctx. If ctx
// derives from the context of a handler, Ready first calls [Async].
func (c *Conn) Ready(ctx context.Context) (result json.RawMessage, err error) {
	c.inbox.releaseFor(ctx)
	select {
	case <-c.initialized:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.initResult == nil || c.state != Ready {
		return nil, c.connError("")
	}
	return c.initResult, nil
}

// Done returns a channel that is closed when the process has been reaped and every call has been
// answered. The state is then Closed or Failed.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns nil while the connection is Initializing or Ready, and afterwards the reason why
// messages are refused. If a callback has panicked, the error wraps that [*PanicError], even if the
// panic happened after the report was made.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == Initializing || c.state == Ready {
		return nil
	}
	e := c.connError("")
	e.Cause = c.withPanic(e.Cause)
	return e
}

// connError returns the reason why a message cannot be sent or answered. The caller holds c.mu.
func (c *Conn) connError(method string) *ConnError {
	e := &ConnError{Name: c.server.Name, Key: c.server.key, Method: method, State: c.state, Cause: c.failure, Exit: c.exit}
	if c.failure != nil {
		e.Stderr = c.stderr.String()
	}
	return e
}

// notAdmitted returns the error for a message that was refused before it was queued. The State in
// this error may still be Ready, because the scope is stopped before the state changes.
func (c *Conn) notAdmitted(method string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.connError(method)
}

// setState changes the state. The caller holds c.mu and calls logState after releasing it.
func (c *Conn) setState(next State) {
	if !c.state.canBecome(next) {
		panic(fmt.Sprintf("lspconn: invalid state transition from %v to %v", c.state, next))
	}
	if c.state == Initializing {
		defer close(c.initialized)
	}
	c.state = next
}

// logState logs a change of state. The caller does not hold c.mu, because the Logger's handler may
// call methods of the connection.
func (c *Conn) logState(from, to State) {
	if from != to {
		c.log(func(log *slog.Logger) {
			log.Debug("lspconn: "+to.String(), "server", c.server.Name, "from", from.String())
		})
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
