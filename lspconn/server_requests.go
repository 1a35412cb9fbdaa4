package lspconn

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/swansong-go/swansong/ctxshutdown"
)

const (
	// maxRequests is the number of server requests that are handled at the same time. Requests beyond
	// it are rejected.
	maxRequests = 256

	// maxRejections is the number of rejections that may wait to be written. The limit bounds the
	// memory that a server can make the connection allocate by sending requests without reading the
	// responses. It is far more than a correct server needs.
	maxRejections = 8192
)

// handleRequest answers a request of the server in a goroutine of its own, so the read loop never
// waits for a handler. Requests are also answered while the connection is closing, because a server
// may answer shutdown only after its own requests have been answered.
func (c *Conn) handleRequest(m message) error {
	g := c.requestScope.Guard() // TryGuard would refuse once closing has begun, but requests are answered until the server exits
	if c.requestScope.GuardCount() > maxRequests {
		return c.reject(rejection{m.ID, g})
	}
	go func() {
		defer g.Release()
		if c.server.OnRequest == nil {
			c.reply(m, nil, &ResponseError{Code: CodeMethodNotFound, Message: "method not found: " + *m.Method})
			return
		}
		var result json.RawMessage
		var failure *ResponseError
		c.catchPanic("OnRequest", *m.Method, func() {
			result, failure = encodeResult(c.server.OnRequest(c.requestScope.Work(), *m.Method, m.Params))
		}, func(p *PanicError) {
			if p != nil { // answer even after a panic: the server might wait for this response before it shuts down
				failure = &ResponseError{Code: CodeInternalError, Message: p.Error()}
			}
			c.reply(m, result, failure)
		})
	}()
	return nil
}

// encodeResult encodes the values that a handler has returned. It may call methods of these values:
// MarshalJSON of the result and Error of the error.
func encodeResult(result any, err error) (text json.RawMessage, failure *ResponseError) {
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

// reply writes a response to the server. It ignores write errors, because the write loop or the
// read loop then fails for the same reason.
func (c *Conn) reply(m message, result json.RawMessage, failure *ResponseError) {
	c.out.write(replyFrame(m.ID, result, failure))
}

// A rejection is a request of the server that receives an error as its response, because too many
// other requests are being handled.
type rejection struct {
	id    json.RawMessage
	guard *ctxshutdown.Guard
}

// reject passes a request to the goroutine that writes all rejections. Only the read loop calls
// reject. reject does not block, although that goroutine may have to wait until the server reads.
func (c *Conn) reject(r rejection) error {
	if c.rejections == nil {
		c.rejections = make(chan rejection, maxRejections)
		go c.writeRejections(c.rejections)
	}
	select {
	case c.rejections <- r:
		return nil
	default:
		r.guard.Release()
		return &ProtocolError{What: fmt.Sprintf("more than %d requests at once, and the server does not read the %d rejections", maxRequests, maxRejections)}
	}
}

func (c *Conn) writeRejections(rejections <-chan rejection) {
	failure := &ResponseError{Code: CodeRequestFailed, Message: fmt.Sprintf("more than %d requests at once", maxRequests)}
	for r := range rejections {
		c.out.write(replyFrame(r.id, nil, failure))
		r.guard.Release()
	}
}

// stopRejecting makes the goroutine that writes rejections end. The read loop calls it before it
// ends itself.
func (c *Conn) stopRejecting() {
	if c.rejections != nil {
		close(c.rejections)
	}
}
