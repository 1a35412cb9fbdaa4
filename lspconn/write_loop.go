package lspconn

import "fmt"

// writeLoop writes queued messages until the queue is empty and writeStop is closed, or a write
// fails.
func (c *Conn) writeLoop() {
	defer close(c.writeDone)
	var batch []*queuedMessage
	var joined []byte
	for {
		c.mu.Lock()
		batch = c.queue.take(batch[:0], c.queueScope.Guard)
		c.mu.Unlock()
		if len(batch) == 0 {
			select {
			case <-c.pending:
				continue
			case <-c.writeStop:
				return
			}
		}
		frames := batch[0].frame
		if len(batch) > 1 {
			joined = joined[:0]
			for _, m := range batch {
				joined = append(joined, m.frame...)
			}
			frames = joined
		}
		if err := c.out.write(frames); err != nil {
			// The write loop does not know why the write failed; the goroutine in run finds out,
			// with pipeFailure. So put the messages back into the queue, where run will fail them
			// with the right error.
			c.mu.Lock()
			c.queue.restore(batch)
			if c.queue.discarded {
				c.discardQueue()
			}
			c.mu.Unlock()
			c.writeErr = fmt.Errorf("cannot write to the server: %w", err)
			return
		}
		for i, m := range batch {
			if m.delivery != nil {
				m.delivery.complete(nil)
			}
			c.release(m)
			batch[i], m.frame = nil, nil // free the encoded message, since Call refers to m until the response arrives
		}
	}
}
