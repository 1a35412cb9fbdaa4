package lspconn

import "time"

// restartIdle begins the time of Server.IdleTimeout again. The caller holds c.mu.
func (c *Conn) restartIdle() {
	// Without a time-out, reading the clock for every message would be wasted time.
	if c.server.IdleTimeout > 0 {
		c.idleSince = time.Now()
	}
}

// beginIdle begins the time of Server.IdleTimeout again. It is called when the server has sent a
// message, and when a handler has answered a request of the server.
func (c *Conn) beginIdle() {
	if c.server.IdleTimeout > 0 {
		c.mu.Lock()
		c.restartIdle()
		c.mu.Unlock()
	}
}

// idleLeft returns for how long the server may still send nothing. While the server need not send
// anything, this is the whole time-out.
func (c *Conn) idleLeft() time.Duration {
	busy := c.inbox.busy()
	c.mu.Lock()
	defer c.mu.Unlock()
	if busy || len(c.calls) == 0 {
		c.restartIdle()
	}
	return c.server.IdleTimeout - time.Since(c.idleSince)
}

// busy reports whether this program has to act next, and not the server: a message waits to be
// delivered, or a request of the server waits for its answer.
func (b *inbox) busy() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.delivering || len(b.waiting) > 0 {
		return true
	}
	for h := range b.running {
		if h.request && !h.answered {
			return true
		}
	}
	return false
}
