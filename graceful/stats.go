package graceful

import (
	"slices"
	"sync"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// Stats are counters over all calls of Run in this program.
type Stats struct {
	Clean, Forced, Abandoned uint64        // the numbers of runs that ended in each way
	Late                     uint64        // the number of guards released after Force or after their run was abandoned
	Extensions               uint64        // the number of extensions granted
	StillHeld                uint64        // the number of guards that were held when Run abandoned its drain, over all runs
	LongestDrain             time.Duration // the longest time that Run took from the beginning of the phase Soft to its return
}

// counters contains the counters of all runs, and the scopes of abandoned runs until their guards
// have been released.
var counters struct {
	sync.Mutex
	Stats
	abandoned []*abandonedScope
}

type abandonedScope struct {
	scope *ctxshutdown.Swansong
	held  int // the number of guards that were held when the run was abandoned
	late  int // how many of the guards counted in held have been released and added to Stats.Late
}

// ReadStats returns the counters. They never decrease. Extensions grows with each extension, and
// the others when a run ends. Late can also grow later.
//
// Late counts the guards that were held when Work was cancelled or when the run was abandoned, and
// have been released since. A guard that is acquired later may hide one of them, so that Late is
// too low by one.
//
// ReadStats may be called concurrently. It takes time proportional to the number of scopes that
// hold guards in abandoned runs.
func ReadStats() Stats {
	counters.Lock()
	defer counters.Unlock()
	counters.abandoned = slices.DeleteFunc(counters.abandoned, func(l *abandonedScope) bool {
		// Count the guards in the way in which l.held was counted: by a report, which counts each
		// of several jobs that share a guard. The method State would count the guards, but must not
		// be called here: the scope may belong to a synctest bubble, whose channels must not be
		// used.
		left := l.scope.GuardReport().Count()
		late := max(l.late, l.held-left)
		counters.Late += uint64(late - l.late)
		l.late = late
		return left == 0
	})
	return counters.Stats
}

// countRun adds one run to the counters.
func countRun(o outcome, s *ctxshutdown.Swansong, atForce, atExit int, took time.Duration) {
	counters.Lock()
	defer counters.Unlock()
	switch o {
	case clean:
		counters.Clean++
	case cutShort:
		counters.Forced++
	case abandoned:
		counters.Abandoned++
		counters.StillHeld += uint64(atExit)
		counters.abandoned = append(counters.abandoned, &abandonedScope{scope: s, held: atExit})
	}
	counters.Late += uint64(max(0, atForce-atExit))
	counters.LongestDrain = max(counters.LongestDrain, took)
}
