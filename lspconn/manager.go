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

// A Manager has a connection for each key, such as a language and a workspace. It starts them when they are first asked
// for, and closes them side by side under one deadline.
//
// Its methods may be called concurrently.
type Manager struct {
	scope   *ctxshutdown.Swansong
	servers func(key string) (Server, error)
	timeout time.Duration
	restart Restart
	spawn   func(Server) (link, error)

	mu       sync.Mutex
	seats    map[string]*seat
	deadline time.Time // zero: not closing
}

// A seat is what the manager knows of a key.
type seat struct {
	turn     chan struct{} // held by whoever looks after the seat
	conn     *Conn         // nil: none yet
	started  time.Time
	restarts int // in a row
}

// A ManagerOption configures a Manager where it is made. A nil one is ignored.
type ManagerOption interface{ apply(*Manager) error }

type managerOption func(*Manager) error

func (f managerOption) apply(m *Manager) error { return f(m) }

// WithCloseTimeout sets the deadline of [Manager.Close] for all connections together: 5 s to 15 s, 10 s if not given.
func WithCloseTimeout(d time.Duration) ManagerOption {
	return managerOption(func(m *Manager) (err error) {
		m.timeout, err = closeTimeout(d)
		return err
	})
}

// WithRestart has servers that fail started again; see [Restart]. Not given, they are not.
func WithRestart(r Restart) ManagerOption {
	return managerOption(func(m *Manager) (err error) {
		m.restart, err = r.complete()
		return err
	})
}

// NewManager returns a manager whose connections live in a scope below the one that ctx carries. When ctx ends, they are
// closed, by the deadline that [Manager.Close] has. servers tells what to start for a key; it may be called concurrently, for
// different keys. A panic in it reaches the caller of [Manager.Conn], and the next one to ask for the key has it called again.
func NewManager(ctx context.Context, servers func(key string) (Server, error), opts ...ManagerOption) (*Manager, error) {
	if servers == nil {
		panic("lspconn: NewManager with a nil function")
	}
	m := &Manager{servers: servers, timeout: defaultClose, spawn: spawn, seats: map[string]*seat{}}
	for _, opt := range opts {
		if opt != nil {
			if err := opt.apply(m); err != nil {
				return nil, fmt.Errorf("lspconn: NewManager: %w", err)
			}
		}
	}
	m.scope, _ = ctxshutdown.WithCancel(ctx, ctxshutdown.WithName("lsp"))
	context.AfterFunc(m.scope, func() { m.fix() }) // at the stop, also where it is the program's
	return m, nil
}

// Conn returns the connection for a key, and starts the server if it is not running yet. It does not wait until the server
// is ready; what is sent meanwhile is queued. Where the server has failed and may not be started again, the error is that
// of the connection. Once the manager is closing, the error matches [ErrClosing]; the cause of ctx if that ends first.
func (m *Manager) Conn(ctx context.Context, key string) (*Conn, error) {
	s, err := m.seat(key)
	if err != nil {
		return nil, err
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-m.scope.Done():
		return nil, m.refusal(key)
	}
	if s.conn != nil && s.conn.Err() == nil {
		return s.conn, nil
	}
	if s.conn != nil {
		if err := m.again(ctx, key, s); err != nil {
			return nil, err
		}
	}
	server, err := m.servers(key)
	if err != nil {
		return nil, fmt.Errorf("lspconn: no server for %q: %w", key, err)
	}
	conn, err := start(m.scope, server, m.spawn, m)
	if m.scope.Err() != nil {
		err = m.refusal(key) // a connection that was made nevertheless closes with the scope
	}
	if err != nil && conn == nil {
		return nil, err
	}
	m.mu.Lock()
	s.conn, s.started = conn, time.Now()
	m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return conn, nil
}

func (m *Manager) seat(key string) (*seat, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.scope.Err() != nil {
		return nil, m.refusal(key)
	}
	s := m.seats[key]
	if s == nil {
		s = &seat{turn: make(chan struct{}, 1)}
		m.seats[key] = s
	}
	return s, nil
}

func (m *Manager) refusal(key string) error { return &ConnError{Name: key, State: Closing} }

// again waits until the server of a seat may be started again, with its turn.
func (m *Manager) again(ctx context.Context, key string, s *seat) error {
	at, failed := s.conn.failed()
	if !failed { // closed by whoever uses it: that is no failure
		return m.gone(ctx, s.conn)
	}
	if at.Sub(s.started) >= m.restart.Reset && m.restart.Reset > 0 {
		s.restarts = 0
	}
	d, ok := m.restart.wait(s.restarts + 1)
	if !ok {
		return s.conn.Err()
	}
	if err := m.gone(ctx, s.conn); err != nil {
		return err
	}
	t := time.NewTimer(time.Until(at.Add(d)))
	defer t.Stop()
	select {
	case <-t.C:
		s.restarts++
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-m.scope.Done():
		return m.refusal(key)
	}
}

// gone waits until the process of a connection that has failed or is closing has been reaped.
func (m *Manager) gone(ctx context.Context, c *Conn) error {
	select {
	case <-c.Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-m.scope.Done():
		return m.refusal(c.Name())
	}
	c.Close(ctx) // for the state; if the deadline came first, it has been reaped nevertheless by now
	return nil
}

// Close closes all connections side by side, and returns their reports, by name, when the last one is Closed or the
// deadline has passed. None waits for another one. It may be called any number of times.
//
// The error joins those of the connections and one for each server that is still being started, and is nil if every process
// has been reaped.
func (m *Manager) Close(ctx context.Context) ([]Report, error) {
	deadline := m.fix()
	m.scope.ShutdownCause(ErrClosing)
	busy := m.awaitStarters(ctx, deadline)
	m.mu.Lock()
	conns := m.connections()
	m.mu.Unlock()

	reports, errs := make([]Report, len(conns)), make([]error, len(conns))
	var all sync.WaitGroup
	for i, c := range conns {
		all.Go(func() { reports[i], errs[i] = c.closeBy(ctx, deadline) })
	}
	all.Wait()
	return reports, errors.Join(append(errs, busy...)...)
}

// fix returns the deadline of all connections, which is fixed by the first call. That comes with the stop, or ahead of it.
func (m *Manager) fix() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.deadline.IsZero() {
		now := time.Now()
		m.deadline = now.Add(m.timeout)
		for _, c := range m.connections() {
			c.decide(now, m.deadline)
		}
	}
	return m.deadline
}

// stopped returns the deadline, if the scope has been stopped. A connection may learn of that before fix is called for it.
func (m *Manager) stopped() (deadline time.Time, ok bool) {
	if m.scope.Err() == nil {
		return deadline, false
	}
	return m.fix(), true
}

// awaitStarters waits for those who are starting a server: they let go of the seat soon, and it closes with the scope. It
// returns an error for each that has not by the deadline, or the end of ctx.
func (m *Manager) awaitStarters(ctx context.Context, deadline time.Time) (busy []error) {
	bound, cancel := context.WithDeadlineCause(ctx, deadline, ErrUnconfirmed)
	defer cancel()
	for _, key := range m.keys() {
		m.mu.Lock()
		turn := m.seats[key].turn
		m.mu.Unlock()
		select {
		case turn <- struct{}{}: // also after the deadline
			<-turn
			continue
		default:
		}
		select {
		case turn <- struct{}{}:
			<-turn
		case <-bound.Done():
			busy = append(busy, fmt.Errorf("lspconn: %q is still being started: %w", key, context.Cause(bound)))
		}
	}
	return busy
}

// connections returns those that have been started, by name; m.mu is held.
func (m *Manager) connections() (conns []*Conn) {
	for _, s := range m.seats {
		if s.conn != nil {
			conns = append(conns, s.conn)
		}
	}
	slices.SortFunc(conns, func(a, b *Conn) int { return strings.Compare(a.Name(), b.Name()) })
	return conns
}

func (m *Manager) keys() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.seats))
}
