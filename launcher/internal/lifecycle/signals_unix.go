//go:build unix

package lifecycle

import "syscall"

// StopSignals are the signals that a group may name as stop signals.
var StopSignals = map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT, "SIGQUIT": syscall.SIGQUIT,
	"SIGHUP":  syscall.SIGHUP,
	"SIGUSR1": syscall.SIGUSR1, "SIGUSR2": syscall.SIGUSR2}

// Continue is the signal that continues a process that was suspended. It is 0 on systems without
// such a signal.
const Continue = syscall.SIGCONT
