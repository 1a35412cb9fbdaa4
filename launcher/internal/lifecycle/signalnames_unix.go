//go:build unix

package lifecycle

import (
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// SignalNamed returns the signal with a name such as SIGHUP, HUP or hup, and 0 if there is none.
func SignalNamed(name string) syscall.Signal {
	return unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(name), "SIG"))
}

// SignalName returns the name of a signal, such as SIGHUP.
func SignalName(s syscall.Signal) string { return unix.SignalName(s) }
