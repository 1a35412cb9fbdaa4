package lspconn

import "context"

// WithOnFailure sets a function that is called when the server of a key has failed, with the error
// that [Conn.Err] returns. It is not called for a server that was closed, or that fails while it is
// being closed.
//
// The function is called once for each failure, on a goroutine of its own, and may call methods of
// the manager: [Manager.Conn] starts the server again, if [WithRestart] allows it. A stop of the
// program waits until the function has returned. [PanicError] documents a panic in the function.
func WithOnFailure(f func(key string, err error)) ManagerOption {
	return managerOption(func(m *Manager) error {
		m.onFailure = f
		return nil
	})
}

// WithOnRestart sets a function that is called when a server was started again after a failure. The
// new server knows nothing of the previous one's documents: the function opens them again.
//
// [Manager.Conn] calls it before it returns the connection to any caller, so what the function
// sends is written before all other messages. The function must not call Conn for the same key,
// because that call would wait for the function. ctx ends when the connection closes or fails; if
// it fails, the function is called again after the next restart. A panic in the function reaches
// the caller of Conn, and the next call of Conn calls the function again.
func WithOnRestart(f func(ctx context.Context, key string, conn *Conn)) ManagerOption {
	return managerOption(func(m *Manager) error {
		m.onRestart = f
		return nil
	})
}

// callOnRestart calls the function of WithOnRestart if the server of the entry has failed before
// and the function has not been called successfully since. The caller holds e.lock.
func (m *Manager) callOnRestart(key string, e *entry) {
	if e.reopen && m.onRestart != nil {
		m.onRestart(e.conn.scope, key, e.conn)
	}
	e.reopen = false
}

// reportFailure calls the function of WithOnFailure, if the connection belongs to a manager that
// has one. It does not wait for the function, because the function may wait for the connection.
func (c *Conn) reportFailure() {
	if c.manager == nil || c.manager.onFailure == nil {
		return
	}
	guard, ok := c.manager.scope.TryGuard()
	if !ok {
		return
	}
	err := c.Err()
	go c.catchPanic("OnFailure", "", func() { c.manager.onFailure(c.server.key, err) }, func(*PanicError) { guard.Release() })
}

// CloseKey closes the connection for a key as [Conn.Close] does, and returns its report. The
// manager then forgets the connection: the reports of [Manager.Close] do not include it, and the
// next call of [Manager.Conn] for the key starts a server, even if the previous one has failed too
// often.
//
// Without a connection for the key, CloseKey returns an empty report and no error. It does not wait
// for a concurrent call of Conn for the key, which may start the server again. If the process is
// not known to have ended, the manager keeps the connection.
func (m *Manager) CloseKey(ctx context.Context, key string) (Report, error) {
	m.mu.Lock()
	e := m.entries[key]
	var c *Conn
	if e != nil {
		c = e.conn
	}
	m.mu.Unlock()
	if c == nil {
		return Report{}, nil
	}
	r, err := c.Close(ctx)
	if c.State() != Closed {
		return r, err
	}
	select {
	case e.lock <- struct{}{}:
		m.mu.Lock()
		if m.entries[key] == e && e.conn == c {
			delete(m.entries, key)
		}
		m.mu.Unlock()
		<-e.lock
	default: // a call of Conn is using the entry, and may start the server again: keep the entry
	}
	return r, err
}
