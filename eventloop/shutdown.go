package eventloop

import "sync"

// A ShutdownHandle is how somebody outside tells a program with a loop to shut down, and how the program learns of it. It
// is a flag that can be waited for, and no more: what follows, and in which order, is for the program to say. A loop that
// is stopped raises it too.
//
// All methods may be called from anywhere, at any time, also when the loop is long gone: a handle keeps nothing of it
// alive. What happened before the first Trigger synchronizes before the closing of the channel of Signal.
type ShutdownHandle struct {
	once   sync.Once
	signal chan struct{}
}

func newShutdownHandle() *ShutdownHandle { return &ShutdownHandle{signal: make(chan struct{})} }

// Trigger raises the flag. Again is a no-op. It never blocks.
func (h *ShutdownHandle) Trigger() { h.once.Do(func() { close(h.signal) }) }

// IsShutdown reports whether the flag is up.
func (h *ShutdownHandle) IsShutdown() bool {
	select {
	case <-h.signal:
		return true
	default:
		return false
	}
}

// Signal returns a channel that is closed when the flag goes up.
func (h *ShutdownHandle) Signal() <-chan struct{} { return h.signal }
