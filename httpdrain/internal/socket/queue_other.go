//go:build !linux

package socket

import "net"

// HasQueued reports whether a connection is known to be in the accept queue of ln. It returns
// false, because this operating system does not show the accept queue.
func HasQueued(ln net.Listener) bool { return false }
