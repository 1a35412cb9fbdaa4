package httpdrain

import "sync/atomic"

// Stats counts events of all servers in the program.
type Stats struct {
	Clean, CutShort uint64 // number of drains that ended by themselves, and that Force cut short
	Cut             uint64 // number of requests and hijacked connections listed in CutErrors
	Silent          uint64 // number of connections that a drain closed in the middle of a header
	Refused         uint64 // number of requests answered with 503, after Force or by WithRetryAfter
}

var counters struct{ clean, cutShort, cut, silent, refused atomic.Uint64 }

// ReadStats returns the counters. They never decrease. Refused is updated at once, the others at
// the end of each drain. ReadStats may be called concurrently.
func ReadStats() Stats {
	return Stats{
		Clean:    counters.clean.Load(),
		CutShort: counters.cutShort.Load(),
		Cut:      counters.cut.Load(),
		Silent:   counters.silent.Load(),
		Refused:  counters.refused.Load(),
	}
}
