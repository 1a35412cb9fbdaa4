//go:build !linux

package grpcdrain

import (
	"net"
	"time"
)

func setUserTimeout(net.Conn, time.Duration) {}
