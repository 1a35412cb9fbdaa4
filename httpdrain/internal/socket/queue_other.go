//go:build !linux

package socket

import "net"

// HasQueued reports whether a connection is known to be in the accept queue of ln. On this
// operating system it never is.
func HasQueued(ln net.Listener) bool { return false }
