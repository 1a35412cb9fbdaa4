//go:build !linux

package httpdrain

import "net"

// waiting reports whether somebody waits to be accepted, where that can be known.
func waiting(net.Listener) bool { return false }
