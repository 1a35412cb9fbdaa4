package lspconn

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
)

const (
	// maxWaiting is the number of messages that may wait until the handlers of earlier ones have
	// returned. If there are more, the read loop blocks.
	maxWaiting = 1024

	// maxAsync is the number of requests whose handlers may have called Async and not returned.
	// Requests beyond it are answered with an error.
	maxAsync = 256
)

// An inbox delivers what the server has sent, in the order in which it was received: it completes a
// call with its response, and calls OnNotify or OnRequest. The next message waits until the handler
// has returned or called Async. A response that waits for no handler is delivered by the read loop;
// everything else is delivered by one goroutine at a time, in deliver.
type inbox struct {
	conn      *Conn
	delivered chan struct{}            // closed when the read loop has ended and every message has been delivered
	ordered   atomic.Pointer[handling] // the handler for which the next message waits, or nil; set under mu

	mu         sync.Mutex
	space      sync.Cond // signalled when a message has left the queue waiting
	waiting    []message
	taken      message                // the message that was last removed from the queue waiting; its handler may not have been called yet
	delivering bool                   // set while deliver runs, and its handlers until they call Async
	running    map[*handling]struct{} // all handlers that have not returned
	async      int                    // number of running handlers that have called Async
	stopped    bool                   // no handler is called any more
	ended      bool                   // the read loop has ended
}

// A handling is one call of OnRequest or OnNotify.
type handling struct {
	inbox    *inbox
	request  bool
	id       json.RawMessage         // the id of a request
	cancel   context.CancelCauseFunc // ends the context of the handler of a request
	answered bool                    // no response may be sent: the message is a notification or was answered; guarded by inbox.mu
}

type handlingKey struct{}

// Async lets the connection deliver the messages that follow the one for which OnRequest or
// OnNotify was called with ctx. The handler goes on at the same time as the handlers of these
// messages. A handler that takes long, or waits for another message of the server, calls Async
// first.
//
// ctx is the context of the handler, or one derived from it. With another context, after the
// handler has returned, and when it is called again, Async does nothing.
func Async(ctx context.Context) {
	if h, ok := ctx.Value(handlingKey{}).(*handling); ok {
		h.inbox.release(h)
	}
}

func newInbox(c *Conn) *inbox {
	b := &inbox{conn: c, delivered: make(chan struct{}), running: map[*handling]struct{}{}}
	b.space.L = &b.mu
	return b
}

// releaseFor does what Async does, before a method of the connection waits for the server. The
// method could otherwise wait for a message that is delivered only after the handler, its caller,
// has returned.
func (b *inbox) releaseFor(ctx context.Context) {
	if b.ordered.Load() != nil {
		Async(ctx)
	}
}

// add delivers a message, or queues it behind the messages that wait. It blocks while too many
// messages wait. Only the read loop calls it.
func (b *inbox) add(m message) {
	b.mu.Lock()
	for len(b.waiting) >= maxWaiting {
		b.space.Wait()
	}
	if !b.delivering && m.Method == nil {
		b.mu.Unlock()
		b.conn.handleResponse(m)
		return
	}
	b.waiting = append(b.waiting, m)
	begin := !b.delivering
	b.delivering = true
	b.mu.Unlock()
	if begin {
		go b.deliver()
	}
}

// end records that the read loop is about to end, so that no more messages arrive.
func (b *inbox) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	b.checkDelivered()
}

// checkDelivered closes the channel delivered if the read loop has ended and every message has been
// delivered. A message that was passed to a handler counts as delivered, even if the handler is
// still running. The caller holds b.mu.
func (b *inbox) checkDelivered() {
	if b.ended && len(b.waiting) == 0 && (!b.delivering || b.ordered.Load() != nil) && !isClosed(b.delivered) {
		close(b.delivered)
	}
}

// deliver delivers the waiting messages. It returns when there are none, and when a handler that it
// has called has called Async: from then on another goroutine delivers.
func (b *inbox) deliver() {
	for {
		m, ok := b.next()
		if !ok {
			return
		}
		switch {
		case m.Method == nil:
			b.conn.handleResponse(m)
		case m.ID == nil:
			ok = b.notify(m)
		default:
			ok = b.request(m)
		}
		if !ok {
			return
		}
	}
}

// next takes the first waiting message. It returns false if there is none.
func (b *inbox) next() (m message, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 {
		b.taken, b.waiting, b.delivering = message{}, nil, false
		b.checkDelivered()
		return m, false
	}
	b.taken, b.waiting[0] = b.waiting[0], message{}
	b.waiting = b.waiting[1:]
	b.space.Signal()
	return b.taken, true
}

// begin makes h the handler for which the next message waits. If the handler of a request must not
// be called, begin returns the error with which the request is answered; for a notification, any
// error.
func (b *inbox) begin(h *handling) *ResponseError {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case h.request && b.taken.cancelled:
		return errRequestCancelled
	case b.stopped:
		return errRequestDiscarded
	case h.request && b.async >= maxAsync:
		return errTooManyRequests
	}
	b.running[h] = struct{}{}
	b.ordered.Store(h)
	b.checkDelivered()
	return nil
}

// answer reports whether the caller must send the response to the request that h handles. Only the
// first call for h returns true.
func (b *inbox) answer(h *handling) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := !h.answered
	h.answered = true
	return first
}

// finish is called when a handler has returned. It reports whether the next message has waited for
// the handler: then the goroutine that has called the handler must deliver that message.
func (b *inbox) finish(h *handling) (ordered bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.running, h)
	if b.ordered.CompareAndSwap(h, nil) {
		return true
	}
	if h.request {
		b.async--
	}
	return false
}

// release lets the next message be delivered although the handler of h has not returned.
func (b *inbox) release(h *handling) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.releaseLocked(h)
}

// releaseLocked does what release does. The caller holds b.mu.
func (b *inbox) releaseLocked(h *handling) {
	if h != nil && b.ordered.CompareAndSwap(h, nil) {
		if h.request {
			b.async++
		}
		go b.deliver()
	}
}

// stopHandlers makes the connection call no handler any more. Requests without a response are
// answered with an error, including those whose handlers are running, and responses no longer wait
// for a handler. It may be called repeatedly.
func (b *inbox) stopHandlers() {
	var unanswered []*handling
	b.mu.Lock()
	b.stopped = true
	for h := range b.running {
		if !h.answered {
			h.answered = true
			unanswered = append(unanswered, h)
		}
	}
	b.mu.Unlock()
	// Answer before the next message is delivered: it may be the response to shutdown, after which
	// exit is written, and nothing more.
	for _, h := range unanswered {
		b.conn.reply(h.id, nil, errRequestDiscarded, b.conn.requestScope.Guard())
	}
	b.mu.Lock()
	b.releaseLocked(b.ordered.Load())
	b.mu.Unlock()
}

// cancelRequest handles $/cancelRequest. It takes effect at once, because the request may be the
// one for whose handler all later messages wait. A request whose handler has not been called yet is
// answered when its turn comes.
func (b *inbox) cancelRequest(params json.RawMessage) {
	var cancelled struct {
		ID json.RawMessage `json:"id"`
	}
	if json.Unmarshal(params, &cancelled) != nil || cancelled.ID == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for h := range b.running {
		if h.request && bytes.Equal(h.id, cancelled.ID) {
			h.cancel(errRequestCancelled)
		}
	}
	cancel := func(m *message) {
		if m.Method != nil && bytes.Equal(m.ID, cancelled.ID) {
			m.cancelled = true
		}
	}
	cancel(&b.taken)
	for i := range b.waiting {
		cancel(&b.waiting[i])
	}
}
