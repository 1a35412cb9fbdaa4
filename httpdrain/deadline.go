package httpdrain

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A deadline is the read deadline of a TCP connection, as the server sets it until it drains. The server lifts it five times
// in a request, four times where there is none, and each time costs as much as all that we do in one; these are left out.
//
// Nothing is left out where somebody else may have set one: the listener, unless it is package net's, and whoever is shown the
// connection itself, by a hook or by NetConn.
type deadline struct {
	none atomic.Bool // there is none

	mu    sync.Mutex // held while none and the connection's may differ
	shown bool       // to somebody else
}

func (d *deadline) set(raw *net.TCPConn, t time.Time) error {
	if t.IsZero() && d.none.Load() {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.none.Store(false)
	err := raw.SetReadDeadline(t)
	d.none.Store(t.IsZero() && err == nil && !d.shown)
	return err
}

// show is called before somebody else gets hold of the connection.
func (d *deadline) show() {
	d.mu.Lock()
	d.shown = true
	d.none.Store(false)
	d.mu.Unlock()
}
