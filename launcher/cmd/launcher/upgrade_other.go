//go:build !unix

package main

import "os"

// upgradeSignals is empty: this system has no signal for an upgrade, nor upgrades.
var upgradeSignals []os.Signal
