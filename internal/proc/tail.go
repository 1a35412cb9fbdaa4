package proc

import (
	"bytes"
	"sync"
)

// A Tail keeps the end of what is written to it, up to a limit. Write never blocks and never fails,
// so a process that floods its stderr is not slowed down. The methods may be called concurrently.
type Tail struct {
	mu    sync.Mutex
	kept  []byte // the latest bytes; at most twice the limit, so that they rarely have to be moved
	limit int
	total int64
}

// NewTail returns a Tail that keeps the last limit bytes.
func NewTail(limit int) *Tail { return &Tail{limit: max(1, limit)} }

// Write appends p. When twice the limit would be exceeded, it drops the oldest bytes, so that limit
// bytes are left before it appends.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total += int64(len(p))
	n := len(p)
	if len(p) >= t.limit {
		t.kept = append(t.kept[:0], p[len(p)-t.limit:]...)
		return n, nil
	}
	if len(t.kept)+len(p) > 2*t.limit {
		t.kept = append(t.kept[:0], t.kept[len(t.kept)-t.limit:]...)
	}
	t.kept = append(t.kept, p...)
	return n, nil
}

// String returns the end of what was written. If text before it was dropped, the result begins with
// the first complete line.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.kept[max(0, len(t.kept)-t.limit):]
	if t.total > int64(len(kept)) {
		if i := bytes.IndexByte(kept, '\n'); i >= 0 && i+1 < len(kept) {
			kept = kept[i+1:]
		}
	}
	return string(kept)
}

// Total returns the number of bytes written so far.
func (t *Tail) Total() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total
}
