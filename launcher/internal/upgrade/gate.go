package upgrade

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A Gate keeps a launcher from changing while it is handed over. Whatever changes what the next
// program has to know is done between Enter and Leave: starts and stops of processes, what is
// learnt of them, and orders. The zero value is an open gate.
//
// A Gate differs from a [sync.RWMutex] in one way: a call of Close that waits keeps no caller of
// Enter waiting. So a goroutine that has entered can wait for another one that has to enter first.
// The price is that Close may never find a moment in which no goroutine is inside; its context
// bounds the attempt.
type Gate struct {
	mu      sync.Mutex
	entered int
	closed  chan struct{} // nil while the gate is open; closed by Open
}

// Enter waits until the gate is open.
func (g *Gate) Enter() {
	for {
		g.mu.Lock()
		closed := g.closed
		if closed == nil {
			g.entered++
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		<-closed
	}
}

// Leave is called once for each Enter, possibly by another goroutine: the one that starts a process
// enters, and the one that runs the process leaves.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.entered--
}

// ErrBusy is returned by Close.
var ErrBusy = errors.New("the launcher cannot be upgraded now, because it starts or stops processes all the time, or because the start or stop of one takes long; try again later")

// Close closes the gate as soon as all that have entered have left. Close fails when ctx ends
// before.
func (g *Gate) Close(ctx context.Context) error {
	for {
		g.mu.Lock()
		if g.entered == 0 && g.closed == nil {
			g.closed = make(chan struct{})
			g.mu.Unlock()
			return nil
		}
		g.mu.Unlock()
		// Poll, because Enter and Leave are frequent, and waking this goroutine would make them
		// slower.
		select {
		case <-time.After(100 * time.Microsecond):
		case <-ctx.Done():
			return ErrBusy
		}
	}
}

// Open opens the gate, which must be closed. All callers of Enter that wait go on.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.closed)
	g.closed = nil
}
