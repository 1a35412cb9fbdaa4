package lspconn

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// A call is a request of the client that has no response yet.
type call struct {
	method   string
	response chan response // receives the response; it has room for one, so that sending never blocks
	guard    *ctxshutdown.Guard
}

type response struct {
	result json.RawMessage
	err    error
}

// newCall registers a call and returns it with its id.
func (c *Conn) newCall(method string) (int64, *call) {
	id := c.lastID.Add(1)
	waiting := &call{method: method, response: make(chan response, 1), guard: c.callScope.Guard()}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addCall(id, waiting)
	return id, waiting
}

// addCall adds a call to the calls that wait for a response. The caller holds c.mu.
func (c *Conn) addCall(id int64, waiting *call) {
	if len(c.calls) == 0 {
		c.restartIdle()
	}
	c.calls[id] = waiting
}

// Call sends a request and waits for its response. It returns after the handlers of all messages
// that the server had sent before the response, except those that have called [Async]. If ctx
// derives from the context of a handler, Call first calls Async. Empty params are omitted from the
// message. The caller may modify params after Call has returned. Call blocks while the queue is
// full. It returns
//
//   - the result, or the [*ResponseError] with which the server answered;
//   - a [*ConnError], which matches [ErrClosing], if the connection is closing or has failed;
//   - the cause of ctx if ctx ends first. A request that has not been written is withdrawn. One
//     that has been written is cancelled with $/cancelRequest, and its response is ignored;
//   - a [*ResponseError] for a message that cannot be sent: params that are not JSON or longer than
//     256 MiB minus 1 KiB, an invalid method, or one of the life-cycle methods that the connection
//     sends itself.
func (c *Conn) Call(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	c.inbox.releaseFor(ctx)
	m, err := c.admit(ctx, method, params)
	if err != nil {
		return nil, err
	}
	m.call = &call{method: method, response: make(chan response, 1), guard: c.callScope.Guard()}
	m.id = c.lastID.Add(1)
	m.frame = frame(m.id, method, params)
	c.mu.Lock()
	c.addCall(m.id, m.call)
	c.enqueue(m)
	c.mu.Unlock()
	select {
	case r := <-m.call.response:
		return r.result, r.err
	case <-ctx.Done():
	}
	return c.cancelCall(ctx, m)
}

// Notify sends a notification and waits until it has been written. It returns nil once the
// notification has been written, and an error that matches [ErrClosing] if it never will be. If ctx
// ends first, Notify withdraws the notification and returns the cause of ctx, unless the
// notification is already being written. [Conn.Call] documents params and the messages that cannot
// be sent.
func (c *Conn) Notify(ctx context.Context, method string, params json.RawMessage) error {
	m, err := c.admit(ctx, method, params)
	if err != nil {
		return err
	}
	m.frame, m.delivery = frame(-1, method, params), newDelivery()
	c.mu.Lock()
	c.enqueue(m)
	c.mu.Unlock()
	select {
	case <-m.delivery.done:
		return m.delivery.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	withdrawn := c.withdraw(m)
	c.mu.Unlock()
	if withdrawn {
		return context.Cause(ctx)
	}
	return m.delivery.Wait(ctx)
}

// NotifyLatest sends a notification that makes earlier ones with the same key superfluous, such as
// the whole text of a document. It never blocks.
//
// It replaces a queued notification with the same key, unless another message that is still queued
// was sent in between. Memory use therefore does not depend on how often it is called. Messages
// that are sent after it are written after it. The caller may modify params after NotifyLatest has
// returned.
//
// A notification that has not been written when the connection closes is discarded. The returned
// Delivery reports the outcome.
func (c *Conn) NotifyLatest(key, method string, params json.RawMessage) *Delivery {
	d := newDelivery()
	if err := checkMessage(method, params); err != nil {
		d.complete(err)
		return d
	}
	m := &queuedMessage{method: method, frame: frame(-1, method, params), key: key, coalesced: true, delivery: d}
	c.mu.Lock()
	if c.queue.refusesCoalesced || c.scope.Err() != nil {
		err := c.connError(method)
		c.mu.Unlock()
		d.complete(err)
		return d
	}
	superseded := c.queue.coalesce(m)
	c.mu.Unlock()
	if superseded != nil {
		superseded.complete(ErrSuperseded)
	} else {
		c.wakeWriter()
	}
	return d
}

// admit waits for a free slot in the queue and returns a message that holds a guard of queueScope,
// the scope of the messages that have not been written. The acquisition of the guard decides
// atomically whether the message was sent before the connection was stopped.
func (c *Conn) admit(ctx context.Context, method string, params json.RawMessage) (*queuedMessage, error) {
	if err := checkMessage(method, params); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case c.slots <- struct{}{}:
	default:
		select {
		case c.slots <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-c.queueScope.Done():
			return nil, c.notAdmitted(method)
		}
	}
	g, ok := c.queueScope.TryGuard()
	if !ok {
		<-c.slots
		return nil, c.notAdmitted(method)
	}
	return &queuedMessage{method: method, guard: g, usesSlot: true}, nil
}

// enqueue appends an admitted message to the queue. If the queue has been discarded since the
// message was admitted, enqueue fails the message. The caller holds c.mu.
func (c *Conn) enqueue(m *queuedMessage) {
	if c.queue.discarded && !m.reply {
		m.dequeued = true
		c.fail(m)
		return
	}
	c.queue.enqueue(m)
	c.wakeWriter()
}

func (c *Conn) wakeWriter() {
	select {
	case c.pending <- struct{}{}:
	default:
	}
}

// withdraw removes a message of Call, Notify or a handler from the queue, and frees its slot. It
// reports whether the message was still queued. It also frees older notifications of NotifyLatest
// that were kept only because the message stood between them and newer ones with the same key. The
// caller holds c.mu.
func (c *Conn) withdraw(m *queuedMessage) bool {
	if m.dequeued {
		return false
	}
	for _, old := range c.queue.withdraw(m) {
		old.delivery.complete(ErrSuperseded)
		c.release(old)
	}
	// After a Close, a notification of NotifyLatest is written only if a message of another kind is
	// queued behind it. If m was the last such message, the notifications that stood before m are
	// never written, so they fail now.
	if c.queue.refusesCoalesced {
		c.refuseCoalesced()
	}
	c.release(m)
	return true
}

// refuseCoalesced makes NotifyLatest fail from now on. It also fails the notifications of
// NotifyLatest at the end of the queue; those that precede a message of another kind are still
// written. The caller holds c.mu.
func (c *Conn) refuseCoalesced() {
	for _, m := range c.queue.refuseCoalesced() {
		c.fail(m)
	}
}

// discardQueue fails the queued messages. Messages that are queued later fail, too, except
// responses to requests of the server. Those are removed only if replies is true. The caller holds
// c.mu.
func (c *Conn) discardQueue(replies bool) {
	c.queue.discarded = true
	for _, m := range c.queue.removeAll(replies) {
		c.fail(m)
	}
}

// release releases the guard, and frees the slot, of a message that has left the queue.
func (c *Conn) release(m *queuedMessage) {
	if m.guard != nil { // a notification of NotifyLatest has a guard only while it is being written
		m.guard.Release()
	}
	if m.usesSlot {
		<-c.slots
	}
}

// fail completes a message that has left the queue without being written. The caller holds c.mu.
func (c *Conn) fail(m *queuedMessage) {
	err := c.connError(m.method)
	switch {
	case m.call != nil:
		c.respond(m.id, response{err: err})
	case m.delivery != nil:
		m.delivery.complete(err)
	}
	c.release(m)
}

// respond completes a call and reports whether the call was still waiting. The caller holds c.mu.
func (c *Conn) respond(id int64, r response) bool {
	waiting, ok := c.calls[id]
	if ok {
		delete(c.calls, id)
		waiting.response <- r
		waiting.guard.Release()
	}
	return ok
}

// cancelCall completes a call whose ctx has ended, unless its response has arrived by now.
func (c *Conn) cancelCall(ctx context.Context, m *queuedMessage) (json.RawMessage, error) {
	// Call the methods of ctx before locking c.mu: the type of ctx may be one of the caller, with
	// methods that call the connection.
	cause := context.Cause(ctx)
	c.mu.Lock()
	if !c.respond(m.id, response{err: cause}) {
		c.mu.Unlock()
		r := <-m.call.response
		return r.result, r.err
	}
	if !c.withdraw(m) {
		// TryGuard fails if the connection has been stopped. Then the cancellation need not be
		// sent, because the server is asked to shut down.
		if g, ok := c.queueScope.TryGuard(); ok {
			params := strconv.AppendInt([]byte(`{"id":`), m.id, 10)
			c.enqueue(newNotification("$/cancelRequest", append(params, '}'), g))
		}
	}
	c.mu.Unlock()
	r := <-m.call.response
	return nil, r.err
}
