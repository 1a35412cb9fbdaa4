//go:build !unix

package httpdrain

import "net"

// hasUnread reports whether the socket of nc has data to read. On this operating system it is not
// known.
func hasUnread(nc net.Conn) (unread, known bool) { return false, false }
