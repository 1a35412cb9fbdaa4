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

var (
	procReader   sync.Mutex // held while a goroutine reads /proc
	nextSnapshot struct {
		sync.Mutex
		read func() *snapshot // reads the next snapshot once for all that wait; nil if none waits
	}
)

// newSnapshot returns a snapshot of /proc that was read entirely after newSnapshot was called. If a
// snapshot is being read at the time of the call, the caller waits for the next one, which it
// shares with other callers.
func newSnapshot() *snapshot {
	nextSnapshot.Lock()
	if nextSnapshot.read == nil {
		nextSnapshot.read = sync.OnceValue(func() *snapshot {
			procReader.Lock()
			defer procReader.Unlock()
			nextSnapshot.Lock()
			nextSnapshot.read = nil // goroutines that call newSnapshot from now on need a newer snapshot
			nextSnapshot.Unlock()
			return &snapshot{all: processes(), marks: map[int][]string{}}
		})
	}
	read := nextSnapshot.read
	nextSnapshot.Unlock()
	return read()
}

// A markState says whether a process carries the mark of a container, a text in its environment.
type markState int

const (
	unmarked markState = iota
	marked
	unknown
)

// markState looks for a mark in the initial environment of a process. The environment of another
// user's process cannot be read; such a process counts as unmarked.
func (t *snapshot) markState(m Member, own string) markState {
	t.mu.Lock()
	defer t.mu.Unlock()
	marks, known := t.marks[m.PID]
	if !known {
		marks = marksOf(m)
		if marks == nil && withoutEnv.settled(m, t.all) {
			marks = []string{}
		} else if marks != nil {
			withoutEnv.forget(m)
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
// scan /proc the maximum number of times.
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
	// Forget the processes that have ended. The slice all may lack a process that is alive. For
	// such a process, the measurement of the time without an environment begins again.
	b.since = alive
	return false
}

func (b *envlessProcesses) forget(m Member) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.since, processID{m.PID, m.start})
}

// marksOf returns the marks in the environment of a process, or nil if the environment is empty.
// From Linux 6.16 on, the environment of a process that is exiting cannot be read. Such a process
// counts as unmarked: it ends by itself. A search that looked again for each of them would take too
// long, because on a busy machine some process is always exiting.
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
