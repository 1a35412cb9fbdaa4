package eventloop

import "sync"

// A ShutdownHandle is a flag by which code outside of the loop asks a program to shut down.
// Goroutines can wait for it. The program decides what happens then, and in which order. Stopping
// the loop also sets the flag, but setting it does not stop the loop. A program that stops by its
// context or under package graceful needs no ShutdownHandle.
//
// The methods may be called concurrently, even after the loop has ended: a handle does not keep the
// loop's memory alive. The first Trigger synchronizes before the closing of the Signal channel.
type ShutdownHandle struct {
	once   sync.Once
	signal chan struct{}
}

func newShutdownHandle() *ShutdownHandle { return &ShutdownHandle{signal: make(chan struct{})} }

// Trigger sets the flag. Further calls have no effect. It never blocks.
func (h *ShutdownHandle) Trigger() { h.once.Do(func() { close(h.signal) }) }

// IsShutdown reports whether the flag is set.
func (h *ShutdownHandle) IsShutdown() bool {
	select {
	case <-h.signal:
		return true
	default:
		return false
	}
}

// Signal returns a channel that is closed when the flag is set.
func (h *ShutdownHandle) Signal() <-chan struct{} { return h.signal }
