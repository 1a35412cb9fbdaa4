package main

import (
	"fmt"
	"os"
	"syscall"
)

// thread names the thread it is called on.
func thread() string {
	if id := syscall.Gettid(); id != os.Getpid() { // the first thread of a process has its number
		return fmt.Sprintf("thread %d", id)
	}
	return "the main thread"
}
