package lspconn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// maxUnanswered is the number of requests of the server that may lack a response, or whose
// responses the server has not read. The limit bounds the memory that a server can make the
// connection allocate by sending requests without reading. It is far more than a correct server
// needs.
const maxUnanswered = 8192

var (
	errRequestCancelled = &ResponseError{Code: CodeRequestCancelled, Message: "the server has cancelled the request"}
	errRequestDiscarded = &ResponseError{Code: CodeRequestFailed, Message: "connection closing"}
	errTooManyRequests  = &ResponseError{Code: CodeRequestFailed, Message: fmt.Sprintf("more than %d requests at once", maxAsync)}
)

// addRequest adds a request of the server to the inbox. Requests are also answered while the
// connection is closing, because a server may answer shutdown only after its own requests have been
// answered.
func (c *Conn) addRequest(m message) error {
	m.guard = c.requestScope.Guard() // TryGuard would refuse once closing has begun, but requests are answered until the server exits
	if c.requestScope.GuardCount() > maxUnanswered {
		m.guard.Release()
		return &ProtocolError{What: fmt.Sprintf("more than %d requests that are unanswered, or whose responses the server does not read", maxUnanswered)}
	}
	c.inbox.add(m)
	return nil
}

// request calls OnRequest for a request of the server and answers it. It returns true if its caller
// must deliver the next message, and false if another goroutine does that already, because the
// handler has called Async or has panicked.
func (b *inbox) request(m message) (ordered bool) {
	c := b.conn
	var refusal *ResponseError
	h := &handling{inbox: b, request: true, id: m.ID}
	var ctx context.Context
	if c.server.OnRequest == nil {
		refusal = &ResponseError{Code: CodeMethodNotFound, Message: "method not found: " + *m.Method}
	} else {
		ctx, h.cancel = context.WithCancelCause(context.WithValue(c.requestScope, handlingKey{}, h))
		defer h.cancel(nil)
		refusal = b.begin(h)
	}
	if refusal != nil {
		c.reply(m.ID, nil, refusal, m.guard)
		return true
	}
	var result json.RawMessage
	var failure *ResponseError
	c.catchPanic("OnRequest", *m.Method, func() {
		answer, err := c.server.OnRequest(ctx, *m.Method, m.Params)
		result, failure = encodeResult(ctx, answer, err)
	}, func(p *PanicError) {
		if p != nil { // answer even after a panic: the server might wait for this response before it shuts down
			failure = &ResponseError{Code: CodeInternalError, Message: p.Error()}
		}
		// Call beginIdle before h counts as answered, so that the server has the whole IdleTimeout
		// for its next message.
		c.beginIdle()
		if b.answer(h) {
			c.reply(m.ID, result, failure, m.guard)
		} else {
			m.guard.Release()
		}
		if p != nil {
			// After this call another goroutine delivers the next messages: if the handler has
			// called runtime.Goexit, this goroutine ends.
			b.stopHandlers()
		}
		ordered = b.finish(h)
	})
	return ordered
}

// encodeResult encodes the values that a handler has returned. It may call methods of these values:
// MarshalJSON of the result and Error of the error. If the handler has returned the error of its
// context ctx, the server gets the reason why the context has ended.
func encodeResult(ctx context.Context, result any, err error) (text json.RawMessage, failure *ResponseError) {
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			if err = context.Cause(ctx); !errors.As(err, &failure) {
				err = errRequestDiscarded // the scope was stopped or the connection has failed
			}
		}
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

// reply sends a response to the server. The response is written after the messages that were queued
// before it, such as the notifications of a handler. While the write loop does not run, because the
// connection is initializing or the queue has been written for the last time, reply writes the
// response itself. It ignores errors, because the read loop then fails for the same reason. The
// guard is released when the response has been written.
func (c *Conn) reply(id, result json.RawMessage, failure *ResponseError, guard *ctxshutdown.Guard) {
	frame := replyFrame(id, result, failure)
	c.mu.Lock()
	writing := c.writing
	if writing {
		c.enqueue(&queuedMessage{frame: frame, reply: true, guard: guard})
	}
	c.mu.Unlock()
	if !writing {
		c.out.write(frame)
		guard.Release()
	}
}
