package ctxshutdown

import (
	"context"
	"time"
)

// Sleep waits for d, and returns false if ctx ends first. A d of zero or less asks whether ctx is done.
func Sleep(ctx context.Context, d time.Duration) bool {
	if ctx == nil {
		panic("ctxshutdown: nil context")
	}
	if ctx.Err() != nil {
		return false
	}
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
