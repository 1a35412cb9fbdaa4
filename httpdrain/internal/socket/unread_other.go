//go:build !unix

package socket

import "net"

// HasUnread reports whether the socket of nc has data to read. On this operating system it is not
// known.
func HasUnread(nc net.Conn) (unread, known bool) { return false, false }
