//go:build !linux || 386

package httpdrain

import (
	"net"
	"time"
)

// roundTrip reports that the connection's round-trip time is not known.
func roundTrip(net.Conn) (rtt time.Duration, ok bool) { return 0, false }
