package httpdrain

import "sync/atomic"

// Stats are counters over all servers in this program.
type Stats struct {
	Clean, CutShort uint64 // how drains ended
	Cut             uint64 // requests and hijacked connections that a CutError has named
	Silent          uint64 // connections closed by the drain (and no time-out of the server's own) in the middle of a header
	Refused         uint64 // requests answered by 503, after the linger (see WithRetryAfter) or after Force
}

var counters struct{ clean, cutShort, cut, silent, refused atomic.Uint64 }

// ReadStats returns the counters, which never go down. They are updated at the end of each drain, Refused at once. It may be
// called concurrently.
func ReadStats() Stats {
	return Stats{
		Clean:    counters.clean.Load(),
		CutShort: counters.cutShort.Load(),
		Cut:      counters.cut.Load(),
		Silent:   counters.silent.Load(),
		Refused:  counters.refused.Load(),
	}
}
