package graceful

import (
	"slices"
	"sync"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// Stats are counters over all runs in this program.
type Stats struct {
	Clean, Forced, Abandoned uint64        // how drains ended
	Late                     uint64        // guards released after somebody had given up on them
	Extensions               uint64        // granted
	StillHeld                uint64        // guards held when runs were abandoned
	LongestDrain             time.Duration // from Soft to the end
}

// counters keep the scopes that were abandoned, whose guards may be released late, until that has happened.
var counters struct {
	sync.Mutex
	Stats
	left []*leftover
}

type leftover struct {
	scope *ctxshutdown.Swansong
	held  int // when it was abandoned
	late  int // of these, the ones that are counted as released
}

// ReadStats returns the counters. They outlive the runs, never go down, and are updated at the end of each run, Late also
// after it, and Extensions at once. Late is what was held when Work was cancelled, or when the run was abandoned, and is
// held no more; a guard acquired so late may hide one that has not been counted yet.
//
// It may be called concurrently, and takes time proportional to the scopes that hold guards in abandoned runs.
func ReadStats() Stats {
	counters.Lock()
	defer counters.Unlock()
	counters.left = slices.DeleteFunc(counters.left, func(l *leftover) bool {
		left := l.scope.GuardCount() // and not State: that may belong to a synctest bubble, of which no channel may be touched here
		late := max(l.late, l.held-left)
		counters.Late += uint64(late - l.late)
		l.late = late
		return left == 0
	})
	return counters.Stats
}

// count takes the end of a run.
func count(o outcome, s *ctxshutdown.Swansong, atForce, atExit int, took time.Duration) {
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
		counters.left = append(counters.left, &leftover{scope: s, held: atExit})
	}
	counters.Late += uint64(max(0, atForce-atExit))
	counters.LongestDrain = max(counters.LongestDrain, took)
}
