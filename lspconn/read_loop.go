package lspconn

import (
	"log/slog"
	"strconv"
)

// readLoop reads messages until the server's output ends or contains something that is not a
// message.
func (c *Conn) readLoop() {
	defer close(c.readDone)
	notifications := newNotificationQueue(c)
	defer notifications.close()
	defer c.stopRejecting()
	for in := newFrameReader(c.process.Stdout()); ; {
		body, err := in.next()
		if err != nil {
			c.readErr = err
			return
		}
		m, err := decode(body)
		if err == nil {
			switch {
			case m.Method == nil:
				err = c.handleResponse(m)
			case m.ID == nil:
				notifications.add(m)
			default:
				err = c.handleRequest(m)
			}
		}
		if err != nil {
			c.readErr = err
			return
		}
	}
}

// handleResponse completes the call that a response answers. A response to a call that has been
// answered or cancelled is counted and ignored. A response to a request that was never sent fails
// the connection.
func (c *Conn) handleResponse(m message) error {
	if m.ID == nil {
		return &ProtocolError{What: "a message of ours could not be parsed", Err: m.Error}
	}
	id, err := strconv.ParseInt(string(m.ID), 10, 64)
	if err != nil || id < 1 || id > c.lastID.Load() {
		return &ProtocolError{What: "a response to a request that was never sent, id " + quoted(m.ID)}
	}
	r := response{result: m.Result}
	if m.Error != nil {
		r = response{err: m.Error}
	} else if m.Result == nil {
		r.result = null
	}
	c.mu.Lock()
	waiting := c.respond(id, r)
	if !waiting {
		c.report.Stray++
	}
	c.mu.Unlock()
	if !waiting {
		c.log(func(log *slog.Logger) {
			log.Debug("lspconn: ignored a response: its call has been answered or cancelled", "server", c.server.Name, "id", id)
		})
	}
	return nil
}

func (c *Conn) readStderr() {
	defer close(c.stderrDone)
	buf := make([]byte, 4<<10)
	for {
		n, err := c.process.Stderr().Read(buf)
		c.stderr.Write(buf[:n])
		if err != nil {
			return
		}
	}
}
