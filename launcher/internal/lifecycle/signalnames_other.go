//go:build !unix

package lifecycle

import (
	"strings"
	"syscall"
)

// SignalNamed returns the signal with a name such as SIGTERM, TERM or term, and 0 if there is none.
func SignalNamed(name string) syscall.Signal {
	return StopSignals["SIG"+strings.TrimPrefix(strings.ToUpper(name), "SIG")]
}

// SignalName returns the name of a signal, such as SIGTERM.
func SignalName(s syscall.Signal) string {
	for name, signal := range StopSignals {
		if signal == s {
			return name
		}
	}
	return s.String()
}
