package debugpage

import (
	"context"
	"encoding/binary"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
)

// A Process reports the phase of the process that the scope belongs to. [graceful.Process]
// implements it.
type Process interface {
	Status() graceful.Status
	Watch(f func(graceful.Status)) (stop func())
}

const (
	maxPoints   = 240         // maximal number of points in the timeline
	maxAtStop   = 100         // maximal number of scopes whose guards at the stop are recorded
	pastRunning = time.Minute // how far back the timeline goes while the scope runs
)

// A snapshot is the state of the scope and the process at one time. It is immutable: concurrent
// requests share it.
type snapshot struct {
	version   uint64 // number of the snapshot, greater than that of the previous one if there is a change to send
	at        time.Time
	path      string
	state     ctxshutdown.State
	forced    bool
	cause     error            // why the scope was stopped; nil while it runs
	status    *graceful.Status // nil if the scope belongs to no process
	entries   []entry
	summary   string
	requests  []ctxshutdown.RequestEntry
	guards    int
	atStop    map[string]int // guards held at the stop, by scopes near the root; nil before the stop
	maxGuards int            // the largest number of guards held since the stop
	points    []point
	marks     []mark
}

// An entry is a GuardEntry with the time at which its oldest guard was acquired. The GuardEntry has
// only the age of the guard, which is different in every snapshot.
type entry struct {
	ctxshutdown.GuardEntry
	since time.Time // zero if the guards are not traced
}

// isTraced reports whether the age of some guard is known.
func (now *snapshot) isTraced() bool {
	return slices.ContainsFunc(now.entries, func(e entry) bool { return !e.since.IsZero() })
}

// A point of the timeline is the number of guards held from the time at until the next point.
type point struct {
	at     time.Time
	guards int
}

// A mark of the timeline is the time at which the shutdown reached a step.
type mark struct {
	at   time.Time
	step step
}

// A recorder takes snapshots of the scope. It also records what a single snapshot does not show:
// the timeline, and the guards that were held at the stop.
type recorder struct {
	scope   *ctxshutdown.Swansong
	process Process // the process of the scope; may be nil

	mu        sync.Mutex
	last      *snapshot
	seed      maphash.Seed
	sum       uint64        // hash of the last snapshot, to find out whether the next one differs
	cost      time.Duration // how long the last snapshot took
	since     map[[2]string]time.Time
	atStop    map[string]int
	maxGuards int
	points    []point
	marks     []mark
}

// newRecorder returns a recorder that takes a snapshot when s is stopped and another when s.Work()
// is done. For both it uses context.AfterFunc, which needs no goroutine until then. It calls s.Work
// only after the stop, because the call keeps s in its parent's list of children.
func newRecorder(s *ctxshutdown.Swansong, p Process) *recorder {
	r := &recorder{scope: s, process: p, seed: maphash.MakeSeed()}
	context.AfterFunc(s, func() {
		r.snapshot(0)
		context.AfterFunc(s.Work(), func() { r.snapshot(0) })
	})
	return r
}

// watchProcess returns a channel that receives a value after the status of the process has changed.
// If several changes happen before the value is received, the channel still has one value.
func (r *recorder) watchProcess() (changed <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	if r.process == nil {
		return c, func() {}
	}
	return c, r.process.Watch(func(graceful.Status) {
		select {
		case c <- struct{}{}:
		default:
		}
	})
}

// snapshot returns a snapshot that is at most maxAge old.
func (r *recorder) snapshot(maxAge time.Duration) *snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	begin := time.Now()
	if r.last != nil && begin.Sub(r.last.at) < maxAge {
		return r.last
	}
	s := r.scope
	now := &snapshot{path: strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(s.String(), "Swansong"), "("), ")")}
	if r.process != nil {
		status := r.process.Status()
		now.status = &status
	}
	now.state = s.State()
	report := s.GuardReport()
	if report.Count() != 0 && now.state == ctxshutdown.Complete {
		now.state = s.State() // a guard was acquired after the first call of State, so ask again
	}
	now.at = time.Now()
	now.guards, now.summary, now.requests = report.Count(), report.Summary(), report.Requests()
	if now.state != ctxshutdown.Running {
		now.cause = context.Cause(s)
		now.forced = s.Work().Err() != nil && context.Cause(s.Work()) != ctxshutdown.ErrShutdown
	}
	now.entries = r.withStartTimes(report.Entries(), begin, now.at)
	r.recordAtStop(now)
	r.recordMarks(now)
	r.recordPoint(now)
	if sum := r.fingerprint(now); r.last == nil || sum != r.sum {
		r.sum = sum
		now.version = 1
		if r.last != nil {
			now.version += r.last.version
		}
	} else {
		now.version = r.last.version
	}
	r.last, r.cost = now, now.at.Sub(begin)
	return now
}

// withStartTimes computes when the oldest guard of each entry was acquired. The ages in entries
// were measured at an unknown time between begin and end, so each start time is known only within
// that uncertainty. If the start time in the previous snapshot is possible, withStartTimes returns
// it again, so that the start time of a guard does not change between snapshots.
func (r *recorder) withStartTimes(entries []ctxshutdown.GuardEntry, begin, end time.Time) []entry {
	result, since := make([]entry, len(entries)), map[[2]string]time.Time{}
	for i, e := range entries {
		result[i].GuardEntry = e
		if e.Site == "" {
			continue
		}
		key, start := [2]string{e.Path, e.Site}, end.Add(-e.Oldest)
		if previous, ok := r.since[key]; ok && !previous.After(start) && !previous.Before(begin.Add(-e.Oldest)) {
			start = previous
		}
		since[key], result[i].since = start, start
	}
	r.since = since
	return result
}

// recordAtStop records the guards held at the stop, and the largest number held since then.
func (r *recorder) recordAtStop(now *snapshot) {
	if now.state == ctxshutdown.Running {
		return
	}
	if r.atStop == nil {
		r.atStop, r.maxGuards = guardsNearRoot(now.entries), now.guards
	}
	r.maxGuards = max(r.maxGuards, now.guards)
	now.atStop, now.maxGuards = r.atStop, r.maxGuards
}

// guardsNearRoot returns the number of guards held by each scope on the first level of the tree,
// and on the second level unless both levels together have more than maxAtStop scopes.
func guardsNearRoot(entries []entry) map[string]int {
	var levels [2]map[string]int
	for depth := range levels {
		levels[depth] = map[string]int{}
		for _, e := range entries {
			if names := strings.SplitN(e.Path, "/", depth+2); len(names) > depth {
				levels[depth][strings.Join(names[:depth+1], "/")] += e.Count
			}
		}
	}
	guards := map[string]int{}
	for _, level := range levels {
		if len(guards)+len(level) > maxAtStop {
			break
		}
		for path, n := range level {
			guards[path] = n
		}
	}
	return guards
}

// recordMarks records the times at which the steps of the shutdown were reached.
func (r *recorder) recordMarks(now *snapshot) {
	reached := func(s step, at time.Time) {
		if !slices.ContainsFunc(r.marks, func(m mark) bool { return m.step == s }) {
			r.marks = append(r.marks, mark{at, s})
			slices.SortStableFunc(r.marks, func(a, b mark) int { return a.at.Compare(b.at) })
		}
	}
	// Without graceful.Run there is no phase, so phase remains Serving even after the stop.
	phase := graceful.Serving
	if now.status != nil {
		phase = now.status.Phase
	}
	complete := now.state == ctxshutdown.Complete
	// After a complete drain, the process is in phase Exit too. The page must not show this as a
	// drain that was given up.
	if phase != graceful.Serving && !(phase == graceful.Exit && complete) {
		reached(stepOf(phase), now.status.Since)
	}
	if now.state != ctxshutdown.Running {
		if phase < graceful.Soft {
			reached(stepSoft, now.at)
		}
		if phase < graceful.Hard && now.forced {
			reached(stepHard, now.at)
		}
		if complete {
			reached(stepDone, now.at)
		} else { // a guard may have been acquired after the scope was complete
			r.marks = slices.DeleteFunc(r.marks, func(m mark) bool { return m.step == stepDone })
		}
	}
	now.marks = slices.Clone(r.marks)
}

// recordPoint adds the number of guards held in the snapshot to the timeline, if the number has
// changed.
func (r *recorder) recordPoint(now *snapshot) {
	if n := len(r.points); n == 0 || r.points[n-1].guards != now.guards {
		r.points = append(r.points, point{now.at, now.guards})
	}
	if now.state == ctxshutdown.Running {
		for len(r.points) > 1 && now.at.Sub(r.points[1].at) > pastRunning {
			r.points = r.points[1:]
		}
	}
	if len(r.points) > maxPoints { // drop every second point, except the first and the last one
		kept := r.points[:1:1]
		for i := 2; i < len(r.points)-1; i += 2 {
			kept = append(kept, r.points[i])
		}
		r.points = append(kept, r.points[len(r.points)-1])
	}
	now.points = slices.Clone(r.points)
}

// fingerprint returns a hash of the parts of a snapshot that clients must know of: streams send an
// event when the fingerprint changes. The ages and countdowns are not in it, because they change
// all the time and the browser counts them itself.
func (r *recorder) fingerprint(now *snapshot) uint64 {
	var h maphash.Hash
	h.SetSeed(r.seed)
	number := func(ns ...int64) {
		for _, n := range ns {
			var b [8]byte
			binary.LittleEndian.PutUint64(b[:], uint64(n))
			h.Write(b[:])
		}
	}
	text := func(s string) {
		number(int64(len(s)))
		h.WriteString(s)
	}
	number(int64(now.state), int64(now.guards), int64(len(now.marks)), int64(openAxis(now)), runningAxisEnd(now).UnixNano())
	if now.forced {
		number(1)
	}
	if st := now.status; st != nil {
		number(int64(st.Phase), st.Until.UnixNano(), int64(st.Signals), int64(st.Extended))
		text(st.Reason)
	}
	for _, e := range now.entries {
		text(e.Path)
		text(e.Site)
		number(int64(e.Count), e.since.UnixNano())
	}
	for _, q := range now.requests {
		text(q.Request)
	}
	return h.Sum64()
}

// lastCost returns how long the last snapshot took, at most a second.
func (r *recorder) lastCost() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return min(r.cost, time.Second)
}
