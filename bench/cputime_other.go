//go:build !unix

package main

import "time"

// processorTime is not to be had here.
func processorTime() time.Duration { return 0 }
