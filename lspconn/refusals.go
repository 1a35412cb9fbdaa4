package lspconn

import (
	"encoding/json"
	"fmt"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// maxRefusals is how many requests beyond maxRequests may wait to be refused. It is far more than a server asks for at once
// that means well, but has not come to read yet; one that goes on and reads nothing must not make us allocate.
const maxRefusals = 8192

// A refusal is a request that is yet to be refused.
type refusal struct {
	id    json.RawMessage
	guard *ctxshutdown.Guard
}

// refuse has a request refused, by one goroutine for all: each may have to wait for the pen, and for the server to read. It
// is called by the reader alone, and does not wait.
func (c *Conn) refuse(r refusal) error {
	if c.refusals == nil {
		c.refusals = make(chan refusal, maxRefusals)
		go c.writeRefusals(c.refusals)
	}
	select {
	case c.refusals <- r:
		return nil
	default:
		r.guard.Release()
		return &ProtocolError{What: fmt.Sprintf("more than %d requests at once, and then %d refusals that it does not read", maxRequests, maxRefusals)}
	}
}

func (c *Conn) writeRefusals(all <-chan refusal) {
	why := &ResponseError{Code: CodeRequestFailed, Message: fmt.Sprintf("more than %d requests at once", maxRequests)}
	for r := range all {
		c.pen.write(reply(r.id, nil, why))
		r.guard.Release()
	}
}

// endRefusals lets that goroutine end: nothing more is read, so nothing more has to be refused.
func (c *Conn) endRefusals() {
	if c.refusals != nil {
		close(c.refusals)
	}
}
