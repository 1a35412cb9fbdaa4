//go:build !linux

package httpdrain

import "net"

// hasQueued reports whether a connection is known to be in the accept queue of ln. On this
// operating system it never is.
func hasQueued(ln net.Listener) bool { return false }
