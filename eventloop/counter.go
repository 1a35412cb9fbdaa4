package eventloop

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/swansong-go/swansong/internal/worktext"
)

// A counter counts things that are active, and goroutines can wait until there are none. The zero
// value is ready to use.
type counter struct {
	mu   sync.Mutex
	n    int
	zero chan struct{} // closed when the count becomes zero; nil while no goroutine waits
}

func (t *counter) add() {
	t.mu.Lock()
	t.n++
	t.mu.Unlock()
}

func (t *counter) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.decrement()
}

// decrement does what done does, for a caller that holds t.mu.
func (t *counter) decrement() {
	if t.n--; t.n == 0 && t.zero != nil {
		close(t.zero)
		t.zero = nil
	}
}

func (t *counter) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// idle returns a channel that is closed once the count is zero, now or later.
func (t *counter) idle() <-chan struct{} {
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

// wait waits until the count is zero or ctx ends.
func (t *counter) wait(ctx context.Context, what string) error {
	if ctx == nil {
		panic("eventloop: a wait for " + what + " with a nil context")
	}
	idle := t.idle()
	select {
	case <-idle:
		return nil
	default:
	}
	if ctx.Err() == nil {
		if err := checkWait(); err != nil {
			return err
		}
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return &WaitError{What: what, Running: t.count(), Cause: context.Cause(ctx)}
	}
}

// A WaitError reports that the context of WaitIdle or WaitRunners ended before the work did.
type WaitError struct {
	What    string // what the caller waited for: "offloads" or "jobs"
	Running int    // the number of offloads or jobs that had not finished when the context ended
	Cause   error  // the cause of the end of the context
}

func (e *WaitError) Error() string {
	return fmt.Sprintf("eventloop: %s not finished when the wait ended (%v); wait longer, or end the contexts of offloads with Force",
		worktext.Pluralize(e.Running, strings.TrimSuffix(e.What, "s")), e.Cause)
}

// Unwrap returns Cause.
func (e *WaitError) Unwrap() error { return e.Cause }
