//go:build !unix

package main

import "os"

// upgradeSignals is empty: this system has no upgrades.
var upgradeSignals []os.Signal
