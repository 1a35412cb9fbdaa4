package proc

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// A snapshot is a list of processes at one time. Concurrent readers share it: when many processes
// end at the same time, reading every environment once per ending process would take too long.
type snapshot struct {
	all   []Member
	mu    sync.Mutex
	marks map[int][]string // the marks of processes by pid; nil for a process whose marks are not known yet
}

// A snapshotReader takes snapshots of the processes that list returns.
type snapshotReader struct {
	list    func() []Member
	reading sync.Mutex // held while a goroutine calls list
	mu      sync.Mutex
	next    func() *snapshot // reads the next snapshot; nil if no goroutine is waiting for it
}

var allProcesses = snapshotReader{list: processes}

// newSnapshot returns a snapshot of /proc that was read entirely after newSnapshot was called.
func newSnapshot() *snapshot { return allProcesses.take() }

// take returns a snapshot that was read entirely after take was called. If a snapshot is being read
// at the time of the call, the caller waits for the next one, which it shares with other callers.
func (r *snapshotReader) take() *snapshot {
	r.mu.Lock()
	if r.next == nil {
		r.next = sync.OnceValue(func() *snapshot {
			r.reading.Lock()
			defer r.reading.Unlock()
			r.mu.Lock()
			r.next = nil // goroutines that call take from now on need a newer snapshot
			r.mu.Unlock()
			return &snapshot{all: r.list(), marks: map[int][]string{}}
		})
	}
	read := r.next
	r.mu.Unlock()
	return read()
}

// A markState says whether a process carries the mark of a container.
type markState int

const (
	unmarked markState = iota
	marked
	unknown
)

// markState looks for a mark in the initial environment of a process. The environment of another
// user's process cannot be read; such a process counts as unmarked.
func (t *snapshot) markState(m Member, own string) markState {
	marks := t.marksOf(m)
	if marks == nil && !withoutEnv.settled(m, t.all) {
		return unknown
	}
	if marks != nil {
		withoutEnv.forget(m)
	}
	if slices.Contains(marks, own) {
		return marked
	}
	return unmarked
}

// marksOf is like the function marksOf, but reads the environment once for all callers.
func (t *snapshot) marksOf(m Member) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	marks, known := t.marks[m.PID]
	if !known {
		marks = marksOf(m)
		t.marks[m.PID] = marks
	}
	return marks
}

// withoutEnv contains the processes whose environment was found empty, with the times at which it
// was first found empty.
var withoutEnv envlessProcesses

type envlessProcesses struct {
	mu    sync.Mutex
	since map[processID]time.Time
}

// A processID identifies one process; a pid alone can be reused.
type processID struct {
	pid   int
	start uint64
}

// settled reports whether the environment of a process has been empty for longer than an exec takes
// on a machine that is not overloaded. If so, the process was started with an empty environment and
// has no marks. Without this check, one such process anywhere on the machine would make every walk
// look at /proc the maximum number of times.
func (b *envlessProcesses) settled(m Member, all []Member) bool {
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
	// The new map omits processes that have ended. If it omits a living one, the time for which
	// that process has had no environment only begins anew.
	b.since = alive
	return false
}

func (b *envlessProcesses) forget(m Member) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.since, processID{m.PID, m.start})
}

// marksOf returns the marks in the environment of a process, or nil if the environment is empty. From
// Linux 6.16 on, that of a process that is exiting cannot be read. If the process is not known, it
// exits by itself, and counts as unmarked: on a busy machine some process is always exiting, so a
// search that looked again for each of them would take too long.
func marksOf(m Member) []string {
	if m.zombie {
		return []string{}
	}
	env, err := environ(m.PID)
	switch {
	case err != nil:
		return []string{}
	case len(env) == 0:
		return nil
	}
	return marksIn(strings.Split(string(env), "\x00"))
}

// marksIn returns the marks in an environment, outermost containment first.
func marksIn(env []string) []string {
	marks := []string{}
	for _, v := range env {
		if all, ok := strings.CutPrefix(v, markKey+"="); ok {
			marks = append(marks, strings.Fields(all)...)
		}
	}
	return marks
}
