package lspconn

import "fmt"

// writeLoop writes queued messages until writeStop is closed and the queue is empty, or a write
// fails. No message is queued after writeStop was closed.
func (c *Conn) writeLoop() {
	defer close(c.writeDone)
	var batch []*queuedMessage
	var joined []byte
	stopped := false
	for {
		c.mu.Lock()
		batch = c.queue.take(batch[:0], c.queueScope.Guard)
		c.mu.Unlock()
		if len(batch) == 0 {
			if stopped {
				return
			}
			select {
			case <-c.pending:
			case <-c.writeStop:
				stopped = true
			}
			continue
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
				c.discardQueue(true)
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
