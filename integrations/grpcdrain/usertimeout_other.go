//go:build !linux

package grpcdrain

import (
	"net"
	"time"
)

// setUserTimeout does nothing, because only Linux has the socket option TCP_USER_TIMEOUT.
func setUserTimeout(net.Conn, time.Duration) {}
