package lspconn

import (
	"fmt"
	"log/slog"
	"strconv"
)

// write is the writer: it has the queue written, until it is idle and told to stop, or a write fails.
func (c *Conn) write() {
	defer close(c.writeEnd)
	var batch []*letter
	var several []byte
	for {
		c.mu.Lock()
		batch = c.outbox.take(batch[:0], c.queued.Guard)
		c.mu.Unlock()
		if len(batch) == 0 {
			select {
			case <-c.wake:
				continue
			case <-c.idle:
				return
			}
		}
		frames := batch[0].frame
		if len(batch) > 1 {
			several = several[:0]
			for _, l := range batch {
				several = append(several, l.frame...)
			}
			frames = several
		}
		err := c.pen.write(frames)
		if err != nil {
			c.mu.Lock()
			c.outbox.restore(batch) // not disposed of here: why the write failed is not known yet, see broken
			if c.outbox.disposed {
				c.disposeQueue()
			}
			c.mu.Unlock()
			c.writeErr = fmt.Errorf("cannot write to the server: %w", err)
			return
		}
		for i, l := range batch {
			if l.sent != nil {
				l.sent.settle(nil)
			}
			c.released(l)
			batch[i], l.frame = nil, nil // a call has its letter until it is answered
		}
	}
}

// read is the reader: it hands out what the server says, to its end.
func (c *Conn) read() {
	defer close(c.readEnd)
	notes := newNotes(c)
	defer notes.end()
	defer c.endRefusals()
	for in := newFrameReader(c.link.Stdout()); ; {
		body, err := in.next()
		if err != nil {
			c.readErr = err
			return
		}
		m, err := decode(body)
		if err == nil {
			switch {
			case m.Method == nil:
				err = c.response(m)
			case m.ID == nil:
				notes.add(m)
			default:
				err = c.request(m)
			}
		}
		if err != nil {
			c.readErr = err
			return
		}
	}
}

// response answers a call. A second response, or a late one, is only counted. One to what was never asked means that the
// two sides do not talk about the same thing.
func (c *Conn) response(m message) error {
	if m.ID == nil {
		return &ProtocolError{What: "it could not read what we sent", Err: m.Error}
	}
	id, err := strconv.ParseInt(string(m.ID), 10, 64)
	taken, err := c.take(m, id, err)
	if err == nil && !taken {
		c.log(func(log *slog.Logger) {
			log.Debug("lspconn: a response is ignored, its call was given up or has been answered", "server", c.server.Name, "id", id)
		})
	}
	return err
}

// take answers a call with a response, and reports whether it was waiting for it.
func (c *Conn) take(m message, id int64, err error) (taken bool, _ error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil || id < 1 || id > c.lastID.Load() {
		return false, &ProtocolError{What: "a response to a request that was never made, id " + quoted(m.ID)}
	}
	a := answer{result: m.Result}
	if m.Error != nil {
		a = answer{err: m.Error}
	} else if m.Result == nil {
		a.result = null
	}
	if c.answer(id, a) {
		return true, nil
	}
	c.report.Stray++
	return false, nil
}

func (c *Conn) readStderr() {
	defer close(c.stderrEnd)
	buf := make([]byte, 4<<10)
	for {
		n, err := c.link.Stderr().Read(buf)
		c.stderr.Write(buf[:n])
		if err != nil {
			return
		}
	}
}
