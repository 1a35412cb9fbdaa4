package lspconn

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// A tracer writes the messages of a connection to Server.Trace, in the text format of
// vscode-languageclient: a line that says what is sent or received, a line that begins with Params
// or Result, and two empty lines.
type tracer struct {
	conn *Conn

	mu       sync.Mutex
	w        io.Writer                // gets the trace; nil after a panic in its method Write
	sent     map[string]tracedRequest // by id, the requests to which the server has not responded
	received map[string]tracedRequest // by id, the requests of the server without a response
}

type tracedRequest struct {
	method string
	at     time.Time
}

// newTracer returns nil if w is nil.
func newTracer(c *Conn, w io.Writer) *tracer {
	if w == nil {
		return nil
	}
	return &tracer{conn: c, w: w, sent: map[string]tracedRequest{}, received: map[string]tracedRequest{}}
}

// sending traces encoded messages. It is called just before they are written, so that no response
// precedes its request in the trace.
func (t *tracer) sending(frames []byte) {
	if t == nil {
		return
	}
	for in := newFrameReader(bytes.NewReader(frames)); ; {
		body, err := in.next()
		if err != nil {
			return
		}
		if m, err := decode(body); err == nil {
			t.trace("Sending", m, t.sent, t.received)
		}
	}
}

// receiving traces a message of the server.
func (t *tracer) receiving(m message) {
	if t != nil && m.Defect == "" {
		t.trace("Received", m, t.received, t.sent)
	}
}

// trace writes one message. The map requests contains the pending requests of the side that has
// sent m, and the map answered contains those of the other side.
func (t *tracer) trace(verb string, m message, requests, answered map[string]tracedRequest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.w == nil {
		return
	}
	now := time.Now()
	var b bytes.Buffer
	fmt.Fprintf(&b, "[Trace - %s] ", now.Format("15:04:05.000"))
	id := tracedID(m.ID)
	switch {
	case m.Method == nil:
		request, ok := answered[id]
		if !ok {
			request = tracedRequest{"unknown", now}
		}
		delete(answered, id)
		took := " in %dms."
		if verb == "Sending" {
			took = ". Processing request took %dms."
		}
		fmt.Fprintf(&b, "%s response '%s - (%s)'"+took, verb, request.method, id, now.Sub(request.at).Milliseconds())
		if m.Error != nil {
			b.WriteString(" Request failed.")
			m.Result, _ = json.Marshal(m.Error)
		}
		b.WriteString("\nResult: ")
		writeIndented(&b, m.Result)
	case m.ID != nil:
		requests[id] = tracedRequest{*m.Method, now}
		fmt.Fprintf(&b, "%s request '%s - (%s)'.\nParams: ", verb, *m.Method, id)
		writeIndented(&b, m.Params)
	default:
		fmt.Fprintf(&b, "%s notification '%s'.\nParams: ", verb, *m.Method)
		writeIndented(&b, m.Params)
	}
	b.WriteString("\n\n\n")
	t.conn.callSafely("Trace", func() { t.w.Write(b.Bytes()) }, func() { t.w = nil })
}

// tracedID returns an id as the tools that read traces expect it: without quotes, and only of
// letters, digits and hyphens.
func tracedID(id json.RawMessage) string {
	return string(bytes.Map(func(r rune) rune {
		switch {
		case r == '"':
			return -1
		case r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z':
			return r
		}
		return '-'
	}, id))
}

// writeIndented writes text over several lines, or null if there is none.
func writeIndented(b *bytes.Buffer, text json.RawMessage) {
	if text == nil {
		text = null
	}
	if json.Indent(b, text, "", "    ") != nil {
		b.Write(null)
	}
}
