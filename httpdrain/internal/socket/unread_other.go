//go:build !unix

package socket

import "net"

// HasUnread reports whether the socket of nc has data to read. On this operating system it cannot
// find out, and known is false.
func HasUnread(nc net.Conn) (unread, known bool) { return false, false }
