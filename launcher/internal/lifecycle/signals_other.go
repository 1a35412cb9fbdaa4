//go:build !unix

package lifecycle

import "syscall"

// StopSignals are the signals that a group may name as stop signals.
var StopSignals = map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT, "SIGQUIT": syscall.SIGQUIT,
	"SIGHUP": syscall.SIGHUP}

// Continue is the signal that continues a process that was suspended. This system has none, so it
// is 0.
const Continue = syscall.Signal(0)
