package output

import (
	"slices"
	"sync"
	"time"
)

// A Line is a line that a process has printed.
type Line struct {
	Time           time.Time
	Group, Process string
	Stream         string // name of the stream: "out" or "err"
	Text           string
	Missed         int // how many lines before this one the subscriber has missed because it was too slow
}

func (l Line) matches(name string) bool { return name == "" || name == l.Group || name == l.Process }

// Recent keeps the last lines of each process, up to keptLines and keptBytes, and streams new lines
// to subscribers. It never waits for a subscriber: a slow one misses lines.
type Recent struct {
	mu          sync.Mutex
	kept        map[string]*history // lines of each process by id
	subscribers map[*subscriber]bool
	closed      bool
}

// A limit for the number of lines alone would keep a thousand very long lines of each process, and
// one for their bytes alone would keep many thousand empty lines.
const (
	keptLines = 1000
	keptBytes = 64 << 10
)

// subscriberBuffer is how many lines a subscriber may be behind before it misses some.
const subscriberBuffer = 1024

// A history is the last lines of one process, the oldest first. It always has at least one, even if
// that one is longer than keptBytes.
type history struct {
	lines []Line
	bytes int
}

type subscriber struct {
	lines  chan Line
	name   string // the name of a group or a process; empty means all processes
	missed int
}

// NewRecent returns a Recent without lines.
func NewRecent() *Recent {
	return &Recent{kept: map[string]*history{}, subscribers: map[*subscriber]bool{}}
}

// Add keeps a line and sends it to the subscribers. l.Missed is set for each of them. It is called
// by the goroutines that read the output of processes, so it must not wait.
func (r *Recent) Add(l Line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.kept[l.Process]
	if h == nil {
		h = &history{}
		r.kept[l.Process] = h
	}
	h.lines = append(h.lines, l)
	h.bytes += len(l.Text)
	for len(h.lines) > keptLines || h.bytes > keptBytes && len(h.lines) > 1 {
		h.bytes -= len(h.lines[0].Text)
		h.lines = h.lines[1:]
	}
	for s := range r.subscribers {
		if !l.matches(s.name) {
			continue
		}
		l.Missed = s.missed
		select {
		case s.lines <- l:
			s.missed = 0
		default:
			s.missed++
		}
	}
}

// Subscribe returns the last lines of a group or a process, in the order of their times, and a
// channel of all later lines. An empty name means all processes. The channel is closed when stop or
// Close is called.
func (r *Recent) Subscribe(name string, last int) (lines []Line, more <-chan Line, stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.kept {
		if h.lines[0].matches(name) {
			lines = append(lines, h.lines...)
		}
	}
	slices.SortStableFunc(lines, func(a, b Line) int { return a.Time.Compare(b.Time) })
	lines = lines[max(0, len(lines)-max(0, last)):]
	s := &subscriber{lines: make(chan Line, subscriberBuffer), name: name}
	if r.closed {
		close(s.lines)
		return lines, s.lines, func() {}
	}
	r.subscribers[s] = true
	return lines, s.lines, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.subscribers[s] {
			delete(r.subscribers, s)
			close(s.lines)
		}
	}
}

// All returns the lines that are kept, those of one process in their order. An upgrade hands them
// over to the new program.
func (r *Recent) All() (lines []Line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.kept {
		lines = append(lines, h.lines...)
	}
	return lines
}

// Forget drops the lines of a process that the launcher no longer remembers. Subscribers still get
// those that were sent to them.
func (r *Recent) Forget(process string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.kept, process)
}

// Close ends all subscriptions: it closes their channels, from which subscribers can still read
// what was sent. Lines can still be added and kept afterwards.
func (r *Recent) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for s := range r.subscribers {
		delete(r.subscribers, s)
		close(s.lines)
	}
}
