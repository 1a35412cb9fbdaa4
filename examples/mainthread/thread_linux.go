package main

import (
	"fmt"
	"os"
	"syscall"
)

// thread returns a name for the thread that the caller runs on.
func thread() string {
	if id := syscall.Gettid(); id != os.Getpid() { // the ID of the main thread is that of the process
		return fmt.Sprintf("thread %d", id)
	}
	return "the main thread"
}
