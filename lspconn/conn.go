package lspconn

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/proc"
)

// A Conn is a connection to a language server that it has started. [State] has its states and transitions. Invariants:
//
//   - Who is admitted is decided by guards of the scope, in one step with the stop: what was admitted before it is
//     written, or answered with an error, and nothing is admitted after it.
//   - state changes under mu, and in one goroutine only, live. That one also ends the process.
//   - A call is in calls until somebody takes it out, under mu, and answers it.
//   - Nothing is written but whole messages, under the pen.
//
// Its methods may be called concurrently. What happened before a Call synchronizes before the answer to it.
type Conn struct {
	server  Server
	manager *Manager // nil: none
	scope   *ctxshutdown.Swansong
	queued  *ctxshutdown.Swansong // a guard for each letter until it is written
	called  *ctxshutdown.Swansong // a guard for each call until it is answered
	asked   *ctxshutdown.Swansong // a guard for each request of the server until it is answered
	held    *ctxshutdown.Guard    // for the process, until it has been reaped
	link    link
	pen     *pen
	stderr  *proc.Tail

	room chan struct{} // a token for each letter in the queue
	wake chan struct{} // there may be something to write

	refusals chan refusal // made and closed by the reader; nil: none yet

	idle       chan struct{} // closed when the writer is to end once it is idle
	stopWriter func()        // closes idle, once
	writeEnd   chan struct{} // closed when the writer has ended
	writeErr   error         // why; nil where it was idle; set before writeEnd is closed
	readEnd    chan struct{} // closed when nothing more will be read
	readErr    error         // why; set before readEnd is closed
	stderrEnd  chan struct{}
	panicEnd   chan struct{} // closed when a callback has panicked

	ready   chan struct{} // closed when the state is no longer Initializing
	settled chan struct{} // closed when the report is there
	done    chan struct{} // closed when the process has been reaped and everybody answered

	lastID atomic.Int64 // of a call

	mu       sync.Mutex
	state    State
	closing  bool      // Close has been called, or the scope been stopped
	deadline time.Time // of the closing; zero: not fixed yet
	outbox   outbox
	calls    map[int64]*call
	result   json.RawMessage // of initialize
	failure  error
	failedAt time.Time
	exit     *Exit
	report   Report
	panic    *PanicError // the first

	unconfirmed error // what End returned at the deadline, if anything
}

// A call is a request that waits for its response.
type call struct {
	method string
	answer chan answer // holds one
	guard  *ctxshutdown.Guard
}

type answer struct {
	result json.RawMessage
	err    error
}

// Start starts a language server and sends it initialize. It returns as soon as the process runs; messages that are sent
// meanwhile are written when the server has answered. See [Conn.Ready] for waiting for that.
//
// The connection lives in a scope of its own below the one that ctx carries. When ctx ends, the connection is closed. An
// error of Start means that there is no process; it matches what os/exec and package os return.
func Start(ctx context.Context, server Server) (*Conn, error) {
	return start(ctx, server, spawn, nil)
}

func start(ctx context.Context, server Server, spawn func(Server) (link, error), manager *Manager) (*Conn, error) {
	server, err := server.complete()
	if err != nil {
		return nil, err
	}
	scope, cancel := ctxshutdown.WithCancel(ctx, ctxshutdown.WithName(server.Name))
	child := func(name string) *ctxshutdown.Swansong {
		s, _ := ctxshutdown.WithCancel(scope, ctxshutdown.WithName(name))
		return s
	}
	held, ok := child("process").TryGuard()
	if !ok {
		cancel()
		return nil, fmt.Errorf("lspconn: %s is not started: %w", server.Name, context.Cause(ctx))
	}
	l, err := spawn(server)
	if err != nil {
		held.Release()
		cancel()
		return nil, fmt.Errorf("lspconn: %s: %w", server.Name, err)
	}
	c := &Conn{
		server: server, scope: scope, held: held, manager: manager,
		queued: child("queue"), called: child("calls"), asked: child("requests"),
		link: l, pen: newPen(l.Stdin()), stderr: proc.NewTail(8 << 10),
		room: make(chan struct{}, server.QueueLimit), wake: make(chan struct{}, 1),
		idle: make(chan struct{}), writeEnd: make(chan struct{}),
		readEnd: make(chan struct{}), stderrEnd: make(chan struct{}), panicEnd: make(chan struct{}),
		ready: make(chan struct{}), settled: make(chan struct{}), done: make(chan struct{}),
		calls: map[int64]*call{},
	}
	c.stopWriter = sync.OnceFunc(func() { close(c.idle) })
	go c.readStderr()
	go c.read()
	go c.live()
	return c, nil
}

// Name returns the server's name.
func (c *Conn) Name() string { return c.server.Name }

// State returns what the connection is doing.
func (c *Conn) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Scope returns the connection's scope, for its GuardReport and for hanging more of one's own on it.
func (c *Conn) Scope() *ctxshutdown.Swansong { return c.scope }

// Ready waits until the server has answered initialize and returns the result, or an error that says why it never will, or
// the cause of ctx.
func (c *Conn) Ready(ctx context.Context) (result json.RawMessage, err error) {
	select {
	case <-c.ready:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.result == nil || c.state != Ready {
		return nil, c.problem("")
	}
	return c.result, nil
}

// Done returns a channel that is closed when the process has been reaped and every caller has been answered: the state is
// Closed then, or Failed.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns nil while the connection is Initializing or Ready, and then why messages are refused. Where a callback has
// panicked it matches that [*PanicError], also where that came too late for the report.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == Initializing || c.state == Ready {
		return nil
	}
	e := c.problem("")
	e.Cause = c.withPanic(e.Cause)
	return e
}

// problem returns why a message cannot be sent or answered; c.mu is held.
func (c *Conn) problem(method string) *ConnError {
	e := &ConnError{Name: c.server.Name, Method: method, State: c.state, Cause: c.failure, Exit: c.exit}
	if c.failure != nil {
		e.Stderr = c.stderr.String()
	}
	return e
}

// refusal is problem for what was never admitted. The scope knows of a stop before the state does.
func (c *Conn) refusal(method string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.problem(method)
}

// Call sends a request and waits for its response. Params that are empty are left out; they may be changed once it has
// returned. It returns
//
//   - the result, or the [*ResponseError] that the server answered,
//   - an error that matches [ErrClosing] if the connection is closing or has failed; a [*ConnError] with what is known,
//   - the cause of ctx if that ends first: then the request is withdrawn, or if it has been written already, cancelled
//     by $/cancelRequest, and whatever the server answers is ignored,
//   - a [*ResponseError] for what cannot be sent: params that are not JSON, the methods of the life cycle.
//
// While the queue is full it waits for room.
func (c *Conn) Call(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	l, err := c.admit(ctx, method, params)
	if err != nil {
		return nil, err
	}
	l.call = &call{method: method, answer: make(chan answer, 1), guard: c.called.Guard()}
	l.id = c.lastID.Add(1)
	l.frame = frame(l.id, method, params)
	c.mu.Lock()
	c.calls[l.id] = l.call
	c.post(l)
	c.mu.Unlock()
	select {
	case a := <-l.call.answer:
		return a.result, a.err
	case <-ctx.Done():
	}
	return c.giveUp(ctx, l)
}

// Notify sends a notification, and returns nil when it has been written, an error that matches [ErrClosing] if it never
// will be, and the cause of ctx if that ends first: then it is withdrawn, unless it is being written already. For params,
// and what cannot be sent, see [Conn.Call].
func (c *Conn) Notify(ctx context.Context, method string, params json.RawMessage) error {
	l, err := c.admit(ctx, method, params)
	if err != nil {
		return err
	}
	l.frame, l.sent = frame(-1, method, params), newDelivery()
	c.mu.Lock()
	c.post(l)
	c.mu.Unlock()
	select {
	case <-l.sent.done:
		return l.sent.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	withdrawn := c.withdraw(l)
	c.mu.Unlock()
	if withdrawn {
		return context.Cause(ctx)
	}
	return l.sent.Wait(ctx)
}

// NotifyLatest sends a notification of which only the latest with its key counts, such as the text of a document. It never
// waits: it replaces the one with its key that has not been written yet, if no other message has been sent since that has not
// been withdrawn, and the memory that it takes does not depend on how often it is called. Messages that are sent after it are
// written after it. Params may be changed once it has returned: they have been copied.
//
// What has not been written when the connection is closed is disposed of. The Delivery tells.
func (c *Conn) NotifyLatest(key, method string, params json.RawMessage) *Delivery {
	d := newDelivery()
	if err := check(method, params); err != nil {
		d.settle(err)
		return d
	}
	l := &letter{method: method, frame: frame(-1, method, params), key: key, coalesced: true, sent: d}
	c.mu.Lock()
	if c.outbox.sealed || c.scope.Err() != nil {
		err := c.problem(method)
		c.mu.Unlock()
		d.settle(err)
		return d
	}
	superseded := c.outbox.coalesce(l)
	c.mu.Unlock()
	if superseded != nil {
		superseded.settle(ErrSuperseded)
	} else {
		c.tell()
	}
	return d
}

// admit waits for room in the queue and takes a letter on, in one step with the check that the scope runs.
func (c *Conn) admit(ctx context.Context, method string, params json.RawMessage) (*letter, error) {
	if err := check(method, params); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case c.room <- struct{}{}:
	default:
		select {
		case c.room <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-c.queued.Done():
			return nil, c.refusal(method)
		}
	}
	g, ok := c.queued.TryGuard()
	if !ok {
		<-c.room
		return nil, c.refusal(method)
	}
	return &letter{method: method, guard: g, room: true}, nil
}

// post puts an admitted letter into the queue, or if that has been disposed of, fails it; c.mu is held.
func (c *Conn) post(l *letter) {
	if c.outbox.disposed {
		l.gone = true
		c.dispose(l)
		return
	}
	c.outbox.enqueue(l)
	c.tell()
}

func (c *Conn) tell() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// withdraw takes an ordered letter back, with what it took along of QueueLimit and memory, and reports whether it was still
// there; c.mu is held.
func (c *Conn) withdraw(l *letter) bool {
	if l.gone {
		return false
	}
	for _, old := range c.outbox.withdraw(l) {
		old.sent.settle(ErrSuperseded)
		c.released(old)
	}
	if c.outbox.sealed { // those before it have nobody behind them any more
		c.seal()
	}
	c.released(l)
	return true
}

// seal fails coalesced notifications, but for those that are written ahead of others; c.mu is held.
func (c *Conn) seal() {
	for _, l := range c.outbox.seal() {
		c.dispose(l)
	}
}

// released is what is to be done when a letter has left the queue, whatever became of it.
func (c *Conn) released(l *letter) {
	if l.guard != nil { // a coalesced one has none until it is being written
		l.guard.Release()
	}
	if l.room {
		<-c.room
	}
}

// dispose fails a letter that is out of the queue; c.mu is held.
func (c *Conn) dispose(l *letter) {
	err := c.problem(l.method)
	if l.call != nil {
		c.answer(l.id, answer{err: err})
	} else {
		l.sent.settle(err)
	}
	c.released(l)
}

// answer answers a call, if it has not been answered; c.mu is held.
func (c *Conn) answer(id int64, a answer) bool {
	waiting, ok := c.calls[id]
	if ok {
		delete(c.calls, id)
		waiting.answer <- a
		waiting.guard.Release()
	}
	return ok
}

// giveUp ends a call whose ctx has ended, unless it has been answered by now.
func (c *Conn) giveUp(ctx context.Context, l *letter) (json.RawMessage, error) {
	cause := context.Cause(ctx) // not under mu: a context may be anybody's code
	c.mu.Lock()
	if !c.answer(l.id, answer{err: cause}) {
		c.mu.Unlock()
		a := <-l.call.answer
		return a.result, a.err
	}
	if !c.withdraw(l) {
		if g, ok := c.queued.TryGuard(); ok { // after the stop, shutdown tells it more plainly
			params := strconv.AppendInt([]byte(`{"id":`), l.id, 10)
			c.post(notice("$/cancelRequest", append(params, '}'), g))
		}
	}
	c.mu.Unlock()
	a := <-l.call.answer
	return nil, a.err
}
