//go:build unix

package main

import (
	"os"
	"syscall"
)

// upgradeSignals order an upgrade. SIGUSR2 has that meaning in other servers, too, such as nginx.
var upgradeSignals = []os.Signal{syscall.SIGUSR2}
