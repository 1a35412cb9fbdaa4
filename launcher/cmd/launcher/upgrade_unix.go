//go:build unix

package main

import (
	"os"
	"syscall"
)

var upgradeSignals = []os.Signal{syscall.SIGUSR2}
