package proc

import (
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// A table is what /proc shows at one time. It is read once for all who look at that time: where many processes end
// together, reading each one's environment for each of them takes longer than they have.
type table struct {
	all   []Member
	mu    sync.Mutex
	marks map[int][]string // nil where there is no telling
}

var (
	reading   sync.Mutex // by who reads /proc
	nextTable struct {
		sync.Mutex
		read func() *table // nil: nobody waits for one
	}
)

// newTable returns a table of which not a line was read before the call. Who comes while one is being read shares the next.
func newTable() *table {
	nextTable.Lock()
	if nextTable.read == nil {
		nextTable.read = sync.OnceValue(func() *table {
			reading.Lock()
			defer reading.Unlock()
			nextTable.Lock()
			nextTable.read = nil // for who comes now, it would be too old
			nextTable.Unlock()
			return &table{all: processes(), marks: map[int][]string{}}
		})
	}
	read := nextTable.read
	nextTable.Unlock()
	return read()
}

// A mark is what an environment says of whose a process is.
type mark int

const (
	unmarked mark = iota
	marked
	unknown
)

// mark looks for one in the environment that a process was started with. That of a process of another user cannot be read.
func (t *table) mark(m Member, own string) mark {
	t.mu.Lock()
	defer t.mu.Unlock()
	marks, known := t.marks[m.PID]
	if !known {
		marks = marksOf(m)
		if marks == nil && bare.long(m, t.all) {
			marks = []string{}
		} else if marks != nil {
			bare.forget(m)
		}
		t.marks[m.PID] = marks
	}
	switch {
	case marks == nil:
		return unknown
	case slices.Contains(marks, own):
		return marked
	}
	return unmarked
}

// bare is who has been seen without an environment, and since when.
var bare bareProcesses

type bareProcesses struct {
	mu    sync.Mutex
	since map[processID]time.Time
}

// A processID is of one process only, which a pid is not.
type processID struct {
	pid   int
	start uint64
}

// long tells whether a process has been without an environment, whenever somebody looked, for longer than an exec takes on a
// machine that is not overwhelmed: it was given none, and whose it is cannot be told by it. Without this, one such process in
// the system, of whomever, has each end take all the looks there are.
func (b *bareProcesses) long(m Member, all []Member) bool {
	const exec = 20 * time.Millisecond
	b.mu.Lock()
	defer b.mu.Unlock()
	id := processID{m.PID, m.start}
	since, known := b.since[id]
	if known {
		return time.Since(since) > exec
	}
	alive := map[processID]time.Time{id: time.Now()}
	for _, m := range all {
		if since, known := b.since[processID{m.PID, m.start}]; known {
			alive[processID{m.PID, m.start}] = since
		}
	}
	b.since = alive // those that are not in all are forgotten when another comes: they have ended, or wait a little longer
	return false
}

func (b *bareProcesses) forget(m Member) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.since, processID{m.PID, m.start})
}

// marksOf returns nil where there is no environment at all.
func marksOf(m Member) []string {
	marks := []string{}
	env, err := os.ReadFile(procFile(m.PID, "environ"))
	switch {
	case err != nil || m.zombie:
		return marks
	case len(env) == 0:
		return nil
	}
	for v := range strings.SplitSeq(string(env), "\x00") {
		if all, ok := strings.CutPrefix(v, markKey+"="); ok {
			marks = append(marks, strings.Fields(all)...)
		}
	}
	return marks
}
