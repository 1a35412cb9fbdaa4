package lspconn

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/unwind"
)

// maxRequests is how many requests of the server are worked on at once.
const maxRequests = 256

// request has a request of the server answered, also while the connection is closing: a server may not answer shutdown
// before it has been answered itself. The reader never waits for it.
func (c *Conn) request(m message) {
	g := c.asked.Guard() // not admission: it is part of what goes on until the server has left
	if c.asked.GuardCount() > maxRequests {
		go func() {
			defer g.Release()
			c.reply(m, nil, &ResponseError{Code: CodeRequestFailed, Message: fmt.Sprintf("more than %d requests at once", maxRequests)})
		}()
		return
	}
	go func() {
		defer unwind.UnlessPanic(g.Release)
		if c.server.OnRequest == nil {
			c.reply(m, nil, &ResponseError{Code: CodeMethodNotFound, Message: "method not found: " + *m.Method})
			return
		}
		result, err := c.server.OnRequest(c.asked.Work(), *m.Method, m.Params)
		var failure *ResponseError
		if err != nil && !errors.As(err, &failure) {
			failure = &ResponseError{Code: CodeInternalError, Message: err.Error()}
		}
		c.reply(m, result, failure)
	}()
}

// reply writes a response. Where that fails, the writer or the reader finds out too.
func (c *Conn) reply(m message, result any, failure *ResponseError) {
	text, ok := result.(json.RawMessage)
	if !ok || text == nil {
		var err error
		if text, err = json.Marshal(result); err != nil && failure == nil {
			failure = &ResponseError{Code: CodeInternalError, Message: err.Error()}
		}
	} else if !json.Valid(text) && failure == nil {
		failure = &ResponseError{Code: CodeInternalError, Message: "the result is not JSON"}
	}
	c.pen.write(reply(m.ID, text, failure))
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
		scope, _ := ctxshutdown.WithCancel(c.scope, ctxshutdown.WithName("notifications"))
		g := scope.Guard()
		go func() {
			defer unwind.UnlessPanic(g.Release)
			for m := range n.ch {
				c.server.OnNotify(*m.Method, m.Params)
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
