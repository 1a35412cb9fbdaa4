package httpdrain

import "github.com/swansong-go/swansong/internal/drainstats"

// Stats counts events of all servers in the program, including the HTTP/3 servers of the module
// integrations/http3drain.
type Stats struct {
	Clean, CutShort uint64 // number of drains that were completed, and number of those that Force cut short
	Cut             uint64 // number of requests and hijacked connections listed in CutErrors
	Silent          uint64 // number of connections that a drain closed in the middle of a header
	Refused         uint64 // number of requests answered with 503, after Force or by WithRetryAfter
}

// ReadStats returns the counters. They never decrease. Refused is updated at once, the others at
// the end of each drain. ReadStats may be called concurrently.
func ReadStats() Stats {
	return Stats{
		Clean:    drainstats.Clean.Load(),
		CutShort: drainstats.CutShort.Load(),
		Cut:      drainstats.Cut.Load(),
		Silent:   drainstats.Silent.Load(),
		Refused:  drainstats.Refused.Load(),
	}
}
