//go:build !linux || 386

package socket

import (
	"net"
	"time"
)

// RoundTrip reports that the connection's round-trip time is not known.
func RoundTrip(net.Conn) (rtt time.Duration, ok bool) { return 0, false }
