// Package drainstats counts what happens while HTTP servers drain. The packages httpdrain and
// http3drain increment the counters, and httpdrain.ReadStats returns them.
package drainstats

import "sync/atomic"

// The counters are those of httpdrain.Stats, which describes them.
var Clean, CutShort, Cut, Silent, Refused atomic.Uint64
