package lspconn

import (
	"context"
	"log/slog"
)

// readLoop reads messages until the server's output ends, or contains something that is not framed
// or not JSON. Valid JSON that is not a message is ignored.
func (c *Conn) readLoop() {
	defer close(c.readDone)
	defer c.inbox.end()
	for in := newFrameReader(c.process.Stdout()); ; {
		body, err := in.next()
		if err != nil {
			c.readErr = err
			return
		}
		c.beginIdle()
		m, err := decode(body)
		if err == nil {
			c.out.trace.receiving(m)
			switch {
			case m.Defect != "":
				c.countStray()
				c.logIgnored(slog.LevelWarn, "a message that does not follow JSON-RPC", "defect", m.Defect, "message", shortened(body))
			case m.Method != nil && m.ID != nil:
				err = c.addRequest(m)
			case m.Method != nil && *m.Method == "$/cancelRequest":
				c.inbox.cancelRequest(m.Params)
			case m.Method == nil || c.server.OnNotify != nil:
				c.inbox.add(m)
			}
		}
		if err != nil {
			c.readErr = err
			return
		}
	}
}

// handleResponse completes the call that a response answers. A response that no call waits for is
// counted and ignored, because real servers send such responses: to a call that has been answered
// or cancelled, with an id that was never sent, or without an id.
func (c *Conn) handleResponse(m message) {
	id, ok := callID(m.ID)
	if !ok || id > c.lastID.Load() {
		c.countStray()
		attrs := []any{"id", shortened(m.ID)}
		if m.Error != nil {
			attrs = append(attrs, "error", m.Error.Error())
		}
		c.logIgnored(slog.LevelWarn, "a response to a request that was never sent", attrs...)
		return
	}
	r := response{result: m.Result}
	if m.Error != nil {
		r = response{err: m.Error}
	} else if m.Result == nil {
		r.result = null
	}
	c.mu.Lock()
	waiting := c.respond(id, r)
	c.mu.Unlock()
	if !waiting {
		c.countStray()
		c.logIgnored(slog.LevelDebug, "a response: its call has been answered or cancelled", "id", id)
	}
}

// countStray counts a message that is ignored.
func (c *Conn) countStray() {
	c.mu.Lock()
	c.report.Stray++
	c.mu.Unlock()
}

func (c *Conn) logIgnored(level slog.Level, what string, attrs ...any) {
	c.log(func(log *slog.Logger) {
		log.Log(context.Background(), level, "lspconn: ignored "+what, append([]any{"server", c.server.Name}, attrs...)...)
	})
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
