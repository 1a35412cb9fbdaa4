package lspconn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// A Manager keeps one connection per key, such as a language and a workspace. It starts a
// connection when it is first requested and closes all of them in parallel under one deadline.
//
// A server that has failed is started again only with [WithRestart]. [WithOnFailure] sets a
// function that is told of failures, and [WithOnRestart] one that opens documents again.
//
// The methods may be called concurrently.
type Manager struct {
	scope     *ctxshutdown.Swansong
	servers   func(key string) (Server, error)
	timeout   time.Duration
	restart   Restart
	onFailure func(key string, err error)
	onRestart func(ctx context.Context, key string, conn *Conn)
	start     func(Server) (serverProcess, error)

	mu       sync.Mutex
	entries  map[string]*entry
	deadline time.Time // the deadline for closing all connections; zero until it is known
}

// An entry contains what the manager knows about the server for one key.
type entry struct {
	lock     chan struct{} // contains a token while a goroutine starts or restarts the server
	conn     *Conn         // nil until the server is first started; written while lock and Manager.mu are held
	started  time.Time     // when the server was last started; guarded by lock, as is restarts
	restarts int           // the number of restarts in a row
	reopen   bool          // the server has failed, and since then onRestart has not been called successfully; guarded by lock
}

// A ManagerOption configures NewManager. A nil option is ignored.
type ManagerOption interface{ apply(*Manager) error }

type managerOption func(*Manager) error

func (f managerOption) apply(m *Manager) error { return f(m) }

// WithCloseTimeout sets the deadline of [Manager.Close] for all connections together: 1 s to 15 s.
// The default is 10 s.
func WithCloseTimeout(d time.Duration) ManagerOption {
	return managerOption(func(m *Manager) (err error) {
		m.timeout, err = checkCloseTimeout(d)
		return err
	})
}

// WithRestart sets the policy for servers that fail; see [Restart]. By default failed servers are
// not restarted.
func WithRestart(r Restart) ManagerOption {
	return managerOption(func(m *Manager) (err error) {
		m.restart, err = r.withDefaults()
		return err
	})
}

// NewManager returns a manager whose connections have a scope below the one that ctx carries. When
// ctx ends, all connections are closed by the deadline of [Manager.Close].
//
// The function servers returns the server to start for a key. It may be called concurrently for
// different keys. A panic in it reaches the caller of [Manager.Conn]; the next call for the same
// key calls servers again.
func NewManager(ctx context.Context, servers func(key string) (Server, error), opts ...ManagerOption) (*Manager, error) {
	if servers == nil {
		panic("lspconn: NewManager: nil function; pass one that returns the server for a key")
	}
	m := &Manager{servers: servers, timeout: defaultClose, start: startProcess, entries: map[string]*entry{}}
	for _, opt := range opts {
		if opt != nil {
			if err := opt.apply(m); err != nil {
				return nil, fmt.Errorf("lspconn: NewManager: %w", err)
			}
		}
	}
	m.scope, _ = ctxshutdown.WithCancel(ctx, ctxshutdown.WithName("lsp"))
	context.AfterFunc(m.scope, func() { m.fixDeadline() }) // the deadline for closing counts from the stop, even if Close is not called
	return m, nil
}

// Conn returns the connection for a key and starts the server if it is not running. It does not
// wait until the server has answered initialize; messages sent before that are queued.
//
// Conn blocks while another goroutine starts the same server, and until the wait of the [Restart]
// policy is over. If the server has failed and may not be restarted, Conn returns an error that
// wraps the error of the connection and names the limit of restarts. It returns an error that
// matches [ErrClosing] once the manager is closing, and the cause of ctx if ctx ends first. It
// waits for the function of [WithOnRestart] in any case.
func (m *Manager) Conn(ctx context.Context, key string) (*Conn, error) {
	e, err := m.lockEntry(ctx, key)
	if err != nil {
		return nil, err
	}
	defer func() { <-e.lock }()
	if e.conn != nil && e.conn.Err() == nil {
		// If the function of WithOnRestart has panicked in an earlier call of Conn, call it again.
		m.callOnRestart(key, e)
		return e.conn, nil
	}
	if e.conn != nil {
		if err := m.awaitRestart(ctx, key, e); err != nil {
			return nil, err
		}
	}
	server, err := m.servers(key)
	if err != nil {
		return nil, fmt.Errorf("lspconn: no server for the key %q: %w", key, err)
	}
	server.key = key
	conn, err := start(m.scope, server, m.start, m)
	if m.scope.Err() != nil {
		err = closingError(key) // if the server was started, the connection is closed, because its scope is stopped
	}
	if err != nil && conn == nil {
		return nil, err
	}
	m.mu.Lock()
	e.conn, e.started = conn, time.Now()
	m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	m.callOnRestart(key, e)
	return conn, nil
}

// lockEntry returns the entry for a key and locks it. It creates the entry if there is none.
func (m *Manager) lockEntry(ctx context.Context, key string) (*entry, error) {
	for {
		e, err := m.entry(key)
		if err != nil {
			return nil, err
		}
		select {
		case e.lock <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-m.scope.Done():
			return nil, closingError(key)
		}
		m.mu.Lock()
		current := m.entries[key] == e
		m.mu.Unlock()
		if current {
			return e, nil
		}
		<-e.lock // CloseKey has removed the entry, so a connection in it would never be closed
	}
}

// entry returns the entry for a key. It creates the entry if there is none.
func (m *Manager) entry(key string) (*entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.scope.Err() != nil {
		return nil, closingError(key)
	}
	e := m.entries[key]
	if e == nil {
		e = &entry{lock: make(chan struct{}, 1)}
		m.entries[key] = e
	}
	return e, nil
}

func closingError(key string) error { return &ConnError{Key: key, State: Closing} }

// awaitRestart waits until the server of an entry may be started again. The caller holds e.lock.
func (m *Manager) awaitRestart(ctx context.Context, key string, e *entry) error {
	at, failed := e.conn.failed()
	if !failed { // Conn.Close was called, which does not count as a failure
		return m.awaitReaped(ctx, e.conn)
	}
	e.reopen = true
	if at.Sub(e.started) >= m.restart.Reset && m.restart.Reset > 0 {
		e.restarts = 0
	}
	d, ok := m.restart.wait(e.restarts + 1)
	if !ok {
		return fmt.Errorf("%w; it is not started again, because Restart.Max is %d (see WithRestart)", e.conn.Err(), m.restart.Max)
	}
	if err := m.awaitReaped(ctx, e.conn); err != nil {
		return err
	}
	t := time.NewTimer(time.Until(at.Add(d)))
	defer t.Stop()
	select {
	case <-t.C:
		e.restarts++
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-m.scope.Done():
		return closingError(key)
	}
}

// awaitReaped waits until the process of a failed or closing connection has been reaped.
func (m *Manager) awaitReaped(ctx context.Context, c *Conn) error {
	select {
	case <-c.Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-m.scope.Done():
		return closingError(c.server.key)
	}
	// The connection may have the state Failed, which Close changes to Closed. Ignore the error of
	// Close: it can only say that a deadline passed before the process was reaped.
	c.Close(ctx)
	return nil
}

// Close closes all connections in parallel. It returns their reports, sorted by name, when the last
// connection is Closed or the deadline has passed. Close may be called any number of times.
//
// If ctx ends first, or had ended before the call, Close kills all servers, also those that are
// being started, and returns within a second: see [Conn.Close].
//
// The error joins the errors of the connections and one error for each server that is still being
// started. It is nil if every process has been reaped.
func (m *Manager) Close(ctx context.Context) ([]Report, error) {
	deadline := m.fixDeadline()
	limit, stop := newCloseLimit(ctx, func(cause error) { m.scope.Force(cause) })
	defer stop()
	m.scope.ShutdownCause(ErrClosing)
	startErrs := m.awaitStarts(limit, deadline)
	m.mu.Lock()
	conns := m.connections()
	m.mu.Unlock()

	reports, errs := make([]Report, len(conns)), make([]error, len(conns))
	var all sync.WaitGroup
	for i, c := range conns {
		all.Go(func() { reports[i], errs[i] = c.closeBy(limit, deadline) })
	}
	all.Wait()
	return reports, errors.Join(append(errs, startErrs...)...)
}

// fixDeadline returns the deadline by which all connections are closed. The first call determines
// it. That call happens when the manager is stopped, or immediately before.
func (m *Manager) fixDeadline() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.deadline.IsZero() {
		now := time.Now()
		m.deadline = now.Add(m.timeout)
		for _, c := range m.connections() {
			c.limitDeadline(now, m.deadline)
		}
	}
	return m.deadline
}

// deadlineIfStopped returns the manager's deadline if the manager's scope has been stopped. It
// determines the deadline if necessary, because a connection may notice the stop before the manager
// does.
func (m *Manager) deadlineIfStopped() (deadline time.Time, stopped bool) {
	if m.scope.Err() == nil {
		return deadline, false
	}
	return m.fixDeadline(), true
}

// awaitStarts waits for the calls of Conn that are starting a server. A connection that such a call
// starts is closed by the scope. awaitStarts returns an error for each start that is still in
// progress at the deadline or when the context limit ends.
func (m *Manager) awaitStarts(limit context.Context, deadline time.Time) (errs []error) {
	bound, cancel := context.WithDeadlineCause(limit, deadline, ErrUnconfirmed)
	defer cancel()
	m.mu.Lock()
	entries := maps.Clone(m.entries) // a copy, because CloseKey may remove entries meanwhile
	m.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		lock := entries[key].lock
		select {
		case lock <- struct{}{}: // first try without waiting, because the deadline may have passed
			<-lock
			continue
		default:
		}
		select {
		case lock <- struct{}{}:
			<-lock
		case <-bound.Done():
			errs = append(errs, fmt.Errorf("lspconn: the server for the key %q is still being started: %w", key, context.Cause(bound)))
		}
	}
	return errs
}

// connections returns all connections, sorted by name. The caller holds m.mu.
func (m *Manager) connections() (conns []*Conn) {
	for _, e := range m.entries {
		if e.conn != nil {
			conns = append(conns, e.conn)
		}
	}
	slices.SortFunc(conns, func(a, b *Conn) int { return strings.Compare(a.Name(), b.Name()) })
	return conns
}
