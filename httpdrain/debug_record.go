package httpdrain

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

// A debugLadder is what the page asks of a graceful.Process.
type debugLadder interface {
	Status() graceful.Status
	Watch(f func(graceful.Status)) (stop func())
}

const (
	maxPoints   = 240         // of the timeline
	maxBaseline = 100         // scopes of which it is known what they held at the stop
	window      = time.Minute // of the timeline, while the scope runs
)

// A debugState is what was seen at one moment. It does not change any more: those who look at the same time share it.
type debugState struct {
	version  uint64 // differs from that of the state before if there is something to tell
	at       time.Time
	path     string
	state    ctxshutdown.State
	forced   bool
	cause    error            // why the scope stops, nil while it runs
	status   *graceful.Status // nil where there is no ladder
	entries  []debugEntry
	guards   int
	baseline map[string]int // guards held at the stop, by the first names of the path; nil while the scope runs
	atStop   int
	points   []debugPoint
	marks    []debugMark
}

// A debugEntry is a GuardEntry whose age does not have to be told again whenever it has grown.
type debugEntry struct {
	ctxshutdown.GuardEntry
	since time.Time // zero where not traced
}

// A debugPoint is a number of guards held from then on.
type debugPoint struct {
	at     time.Time
	guards int
}

// A debugMark is the time of a change that everybody wants to see in the timeline.
type debugMark struct {
	at   time.Time
	step debugStep
}

// A debugRecord remembers what was seen.
type debugRecord struct {
	scope  *ctxshutdown.Swansong
	ladder debugLadder

	mu       sync.Mutex
	last     *debugState
	seed     maphash.Seed
	sum      uint64
	cost     time.Duration // of the last look
	since    map[[2]string]time.Time
	baseline map[string]int
	atStop   int
	points   []debugPoint
	marks    []debugMark
}

// newDebugRecord takes note of the stop and of what ends the hard tier by callbacks of package context, which take a
// goroutine when they are called and not before. Work is asked for after the stop only, for it pins the scope.
func newDebugRecord(s *ctxshutdown.Swansong, l debugLadder) *debugRecord {
	r := &debugRecord{scope: s, ladder: l, seed: maphash.MakeSeed()}
	context.AfterFunc(s, func() {
		r.look(0)
		context.AfterFunc(s.Work(), func() { r.look(0) })
	})
	return r
}

// look returns what there is to see, as it was at most age ago.
func (r *debugRecord) look(age time.Duration) *debugState {
	r.mu.Lock()
	defer r.mu.Unlock()
	begin := time.Now()
	if r.last != nil && begin.Sub(r.last.at) < age {
		return r.last
	}
	s := r.scope
	now := &debugState{path: strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(s.String(), "Swansong"), "("), ")")}
	if r.ladder != nil {
		status := r.ladder.Status()
		now.status = &status
	}
	now.state = s.State()
	report := s.GuardReport()
	if report.Count() != 0 && now.state == ctxshutdown.Complete {
		now.state = s.State() // a late guard came between
	}
	now.at = time.Now()
	now.guards = report.Count()
	if now.state != ctxshutdown.Running {
		now.cause = context.Cause(s)
		now.forced = s.Work().Err() != nil && context.Cause(s.Work()) != ctxshutdown.ErrShutdown
	}
	now.entries = r.settle(report.Entries(), begin, now.at)
	r.mark(now)
	r.draw(now)
	if sum := r.hash(now); r.last == nil || sum != r.sum {
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

// settle finds out since when the oldest guards of each group are held. Their age is of some moment between begin and
// end: what may be the same time as before is the same time.
func (r *debugRecord) settle(entries []ctxshutdown.GuardEntry, begin, end time.Time) []debugEntry {
	settled, since := make([]debugEntry, len(entries)), map[[2]string]time.Time{}
	for i, e := range entries {
		settled[i].GuardEntry = e
		if e.Site == "" {
			continue
		}
		key, at := [2]string{e.Path, e.Site}, end.Add(-e.Oldest)
		if was, ok := r.since[key]; ok && !was.After(at) && !was.Before(begin.Add(-e.Oldest)) {
			at = was
		}
		since[key], settled[i].since = at, at
	}
	r.since = since
	return settled
}

// mark notes which steps have been reached.
func (r *debugRecord) mark(now *debugState) {
	reached := func(step debugStep, at time.Time) {
		if !slices.ContainsFunc(r.marks, func(m debugMark) bool { return m.step == step }) {
			r.marks = append(r.marks, debugMark{at, step})
			slices.SortStableFunc(r.marks, func(a, b debugMark) int { return a.at.Compare(b.at) })
		}
	}
	// On Exit is also a process that is over because all is drained.
	if st := now.status; st != nil && st.Rung != graceful.Serving && !(st.Rung == graceful.Exit && now.state == ctxshutdown.Complete) {
		reached(stepOf(st.Rung), st.Since)
	}
	if now.state == ctxshutdown.Running {
		now.marks = slices.Clone(r.marks)
		return
	}
	rung := graceful.Serving // of a scope that stops on its own, the ladder knows nothing
	if now.status != nil {
		rung = now.status.Rung
	}
	if rung < graceful.Soft {
		reached(stepSoft, now.at)
	}
	if rung < graceful.Hard && now.forced {
		reached(stepHard, now.at)
	}
	if r.baseline == nil {
		r.baseline, r.atStop = baseline(now.entries), now.guards
	}
	r.atStop = max(r.atStop, now.guards)
	now.baseline, now.atStop = r.baseline, r.atStop
	i := slices.IndexFunc(r.marks, func(m debugMark) bool { return m.step == stepDone })
	switch {
	case now.state == ctxshutdown.Complete:
		reached(stepDone, now.at)
	case i >= 0:
		r.marks = slices.Delete(r.marks, i, i+1) // a late guard
	}
	now.marks = slices.Clone(r.marks)
}

// baseline returns what the scopes near the root hold.
func baseline(entries []debugEntry) map[string]int {
	var names [2]map[string]int
	for depth := range names {
		names[depth] = map[string]int{}
		for _, e := range entries {
			if segments := strings.SplitN(e.Path, "/", depth+2); len(segments) > depth {
				names[depth][strings.Join(segments[:depth+1], "/")] += e.Count
			}
		}
	}
	held := map[string]int{}
	for _, level := range names {
		if len(held)+len(level) > maxBaseline {
			break
		}
		for path, n := range level {
			held[path] = n
		}
	}
	return held
}

// draw adds to the timeline.
func (r *debugRecord) draw(now *debugState) {
	if n := len(r.points); n == 0 || r.points[n-1].guards != now.guards {
		r.points = append(r.points, debugPoint{now.at, now.guards})
	}
	if now.state == ctxshutdown.Running {
		for len(r.points) > 1 && now.at.Sub(r.points[1].at) > window {
			r.points = r.points[1:]
		}
	}
	if len(r.points) > maxPoints { // coarser, with the first and the last as they are
		kept := r.points[:1:1]
		for i := 2; i < len(r.points)-1; i += 2 {
			kept = append(kept, r.points[i])
		}
		r.points = append(kept, r.points[len(r.points)-1])
	}
	now.points = slices.Clone(r.points)
}

// hash is of all that is worth telling: not of what only time has changed.
func (r *debugRecord) hash(now *debugState) uint64 {
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
	number(int64(now.state), int64(now.guards), int64(len(now.marks)), int64(axis(now)), frame(now).UnixNano())
	if now.forced {
		number(1)
	}
	if st := now.status; st != nil {
		number(int64(st.Rung), st.Until.UnixNano(), int64(st.Signals), int64(st.Extended))
		text(st.Reason)
	}
	for _, e := range now.entries {
		text(e.Path)
		text(e.Site)
		number(int64(e.Count), e.since.UnixNano())
	}
	return h.Sum64()
}

// price is what the last look has cost.
func (r *debugRecord) price() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return min(r.cost, time.Second)
}
