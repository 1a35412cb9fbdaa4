package launcher

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// A Line is what a process has printed.
type Line struct {
	Time           time.Time
	Group, Process string
	Stream         string // "out" or "err"
	Text           string
	Missed         int // lines that this reader has missed before this one, being too slow
}

// A lineHub keeps the last lines of each process, and hands those to come to who reads. It waits for nobody.
//
// What is kept is bounded, for each process, by lines and by bytes.
type lineHub struct {
	mu      sync.Mutex
	kept    map[string]*history // by process
	readers map[*reader]bool
	over    bool
}

const (
	keptLines = 1000
	keptBytes = 64 << 10
)

type history struct {
	lines []Line
	bytes int
}

type reader struct {
	lines  chan Line
	name   string // of a group or a process; empty: all
	missed int
}

func newLineHub() *lineHub {
	return &lineHub{kept: map[string]*history{}, readers: map[*reader]bool{}}
}

func (h *lineHub) print(l Line) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.kept[l.Process]
	if k == nil {
		k = &history{}
		h.kept[l.Process] = k
	}
	k.lines = append(k.lines, l)
	k.bytes += len(l.Text)
	for len(k.lines) > keptLines || k.bytes > keptBytes && len(k.lines) > 1 {
		k.bytes -= len(k.lines[0].Text)
		k.lines = k.lines[1:]
	}
	for r := range h.readers {
		if !l.of(r.name) {
			continue
		}
		l.Missed = r.missed
		select {
		case r.lines <- l:
			r.missed = 0
		default:
			r.missed++
		}
	}
}

func (l Line) of(name string) bool { return name == "" || name == l.Group || name == l.Process }

// read returns the last lines of those of this name, and a channel of those to come.
func (h *lineHub) read(name string, last int) (lines []Line, more <-chan Line, stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range h.kept {
		if k.lines[0].of(name) {
			lines = append(lines, k.lines...)
		}
	}
	slices.SortStableFunc(lines, func(a, b Line) int { return a.Time.Compare(b.Time) })
	lines = lines[max(0, len(lines)-max(0, last)):]
	r := &reader{lines: make(chan Line, watched), name: name}
	if h.over {
		close(r.lines)
		return lines, r.lines, func() {}
	}
	h.readers[r] = true
	return lines, r.lines, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.readers[r] {
			delete(h.readers, r)
			close(r.lines)
		}
	}
}

func (h *lineHub) forget(process string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.kept, process)
}

// close ends all reading.
func (h *lineHub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	for r := range h.readers {
		delete(h.readers, r)
		close(r.lines)
	}
}

// Printed returns the last lines that a process, or those of a group, or, without a name, all have printed, as far as they
// are kept: 1,000 lines and 64 KiB of each process, also for a while after its end. More has those to come, until stop, or
// the end of the manager; whoever reads too slowly misses some, and is told how many. The error matches [ErrNotFound].
func (m *Manager) Printed(name string, last int) (lines []Line, more <-chan Line, stop func(), err error) {
	if name != "" {
		if _, err := m.group(name); err != nil {
			if _, err := m.process(name); err != nil {
				return nil, nil, nil, fmt.Errorf("%w: neither a group nor a process has the name %q", ErrNotFound, name)
			}
		}
	}
	lines, more, stop = m.printed.read(name, last)
	return lines, more, stop, nil
}
