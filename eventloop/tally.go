package eventloop

import (
	"context"
	"fmt"
	"sync"
)

// A tally counts what is under way, and tells when nothing is. The zero tally is ready.
type tally struct {
	mu   sync.Mutex
	n    int
	zero chan struct{} // closed when n gets to zero; nil where nobody waits
}

func (t *tally) add() {
	t.mu.Lock()
	t.n++
	t.mu.Unlock()
}

func (t *tally) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n--; t.n == 0 && t.zero != nil {
		close(t.zero)
		t.zero = nil
	}
}

func (t *tally) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// idle returns a channel that is closed once there was a moment, from now on, when nothing was under way.
func (t *tally) idle() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n == 0 {
		return closed
	}
	if t.zero == nil {
		t.zero = make(chan struct{})
	}
	return t.zero
}

// wait waits for that moment, or until ctx ends.
func (t *tally) wait(ctx context.Context, what string) error {
	if ctx == nil {
		panic("eventloop: wait with a nil context")
	}
	idle := t.idle()
	select {
	case <-idle:
		return nil
	default:
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return &WaitError{What: what, Running: t.count(), Cause: context.Cause(ctx)}
	}
}

// A WaitError says that a wait ended before what it was for.
type WaitError struct {
	What    string // what was waited for: "offloads", "jobs"
	Running int    // how many of them were still under way
	Cause   error  // why the wait ended
}

func (e *WaitError) Error() string {
	return fmt.Sprintf("eventloop: %d %s still running when the wait ended (%v); wait longer, or end their context with Force", e.Running, e.What, e.Cause)
}

// Unwrap returns the cause.
func (e *WaitError) Unwrap() error { return e.Cause }
