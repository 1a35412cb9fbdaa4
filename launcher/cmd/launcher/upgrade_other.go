//go:build !unix

package main

import "os"

var upgradeSignals []os.Signal
