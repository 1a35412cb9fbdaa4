//go:build !unix

package httpdrain

import "net"

// look reports whether there is something to read in nc's socket, without reading it, where that can be known.
func look(net.Conn) (something, known bool) { return false, false }
