package lspconn

import (
	"encoding/json"
	"errors"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// maxRequests is how many requests of the server are worked on at once.
const maxRequests = 256

// request has a request of the server answered, also while the connection is closing: a server may not answer shutdown
// before it has been answered itself. The reader never waits for it.
func (c *Conn) request(m message) error {
	g := c.asked.Guard() // not admission: it is part of what goes on until the server has left
	if c.asked.GuardCount() > maxRequests {
		return c.refuse(refusal{m.ID, g})
	}
	go func() {
		defer g.Release()
		if c.server.OnRequest == nil {
			c.reply(m, nil, &ResponseError{Code: CodeMethodNotFound, Message: "method not found: " + *m.Method})
			return
		}
		var result json.RawMessage
		var failure *ResponseError
		c.protect("OnRequest", *m.Method, func() {
			result, failure = encode(c.server.OnRequest(c.asked.Work(), *m.Method, m.Params))
		}, func(p *PanicError) {
			if p != nil { // while the connection is closing, the server may be waiting for this
				failure = &ResponseError{Code: CodeInternalError, Message: p.Error()}
			}
			c.reply(m, result, failure)
		})
	}()
	return nil
}

// encode makes a response of what a handler has returned. It calls methods of that.
func encode(result any, err error) (text json.RawMessage, failure *ResponseError) {
	if err != nil {
		if !errors.As(err, &failure) {
			failure = &ResponseError{Code: CodeInternalError, Message: err.Error()}
		}
		return nil, failure
	}
	text, ok := result.(json.RawMessage)
	if !ok || text == nil {
		if text, err = json.Marshal(result); err != nil {
			failure = &ResponseError{Code: CodeInternalError, Message: err.Error()}
		}
	} else if !json.Valid(text) {
		failure = &ResponseError{Code: CodeInternalError, Message: "the result is not JSON"}
	}
	return text, failure
}

// reply writes a response. Where that fails, the writer or the reader finds out too.
func (c *Conn) reply(m message, result json.RawMessage, failure *ResponseError) {
	c.pen.write(reply(m.ID, result, failure))
}

// notes hands notifications to Server.OnNotify, in their order and one at a time.
type notes struct {
	conn *Conn
	ch   chan message // nil: nobody listens
}

// maxNotes is how far OnNotify may fall behind before nothing is read any more.
const maxNotes = 1024

func newNotes(c *Conn) *notes {
	n := &notes{conn: c}
	if c.server.OnNotify != nil {
		n.ch = make(chan message, maxNotes)
		scope, cancel := ctxshutdown.WithCancel(c.scope, ctxshutdown.WithName("notifications"))
		_ = cancel // it lasts as long as the connection
		g := scope.Guard()
		go func() {
			defer g.Release()
			defer func() {
				for range n.ch { // after a panic: the reader is not to wait for somebody who has gone
				}
			}()
			for m := range n.ch {
				ok := false
				c.protect("OnNotify", *m.Method, func() {
					c.server.OnNotify(*m.Method, m.Params)
				}, func(p *PanicError) { ok = p == nil })
				if !ok {
					return
				}
			}
		}()
	}
	return n
}

func (n *notes) add(m message) {
	if n.ch == nil {
		return
	}
	select {
	case n.ch <- m:
		return
	default:
	}
	select {
	case n.ch <- m:
	case <-n.conn.link.Done(): // who has not kept up until now does not hold up the end
	}
}

func (n *notes) end() {
	if n.ch != nil {
		close(n.ch)
	}
}
