package lspconn

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// An outbox is what has been accepted and not yet written. It is kept under the connection's mu.
//
//	Call, Notify ──────▶ queue ──────────────────────────▶ writer ──▶ stdin
//	                       ▲ ahead of a Call or a Notify      ▲
//	NotifyLatest ─▶ latest ┴──────── the queue is empty ──────┘
//
// Every letter leaves it once: to the writer, to whoever withdraws it, or to whoever disposes of it; the writer gives back
// what it could not write. Whoever takes it out settles it, so everybody is answered exactly once. Coalesced notifications
// enter the queue before the next message that is no such, so a request sees the state that it was made in, and the latest
// one replaces only what nobody can have counted on.
type outbox struct {
	queue    []*letter
	latest   map[string]*letter
	order    []*letter // latest, oldest first
	sealed   bool      // coalesced notifications are refused
	disposed bool      // all are
}

// A letter is a message on its way to the writer.
type letter struct {
	method string
	params json.RawMessage
	id     int64 // of a call; -1 of a notification
	key    string
	call   *call     // answered if the letter is never written
	sent   *Delivery // settled when the letter is written, or never will be
	guard  *ctxshutdown.Guard
	room   bool // counts against QueueLimit
	gone   bool // out of the queue
}

// A Delivery tells what has become of a notification.
type Delivery struct {
	done chan struct{}
	err  error
}

func newDelivery() *Delivery { return &Delivery{done: make(chan struct{})} }

func (d *Delivery) settle(err error) {
	d.err = err
	close(d.done)
}

// Done returns a channel that is closed when it is known what has become of the notification.
func (d *Delivery) Done() <-chan struct{} { return d.done }

// Wait waits for that, or for the end of ctx, and returns nil if the notification has been written, [ErrSuperseded] if a
// later one took its place, an error that matches [ErrClosing] if it was disposed of, or the cause of ctx. What Wait
// returns after ctx has ended says nothing about the notification, which may still be written.
func (d *Delivery) Wait(ctx context.Context) error {
	select {
	case <-d.done:
		return d.err
	case <-ctx.Done():
	}
	select {
	case <-d.done:
		return d.err
	default:
		return context.Cause(ctx)
	}
}

// enqueue appends a letter, after the coalesced ones.
func (o *outbox) enqueue(l *letter, guard func() *ctxshutdown.Guard) {
	for _, early := range o.order {
		early.guard = guard()
		o.queue = append(o.queue, early)
	}
	o.clearLatest()
	o.queue = append(o.queue, l)
}

func (o *outbox) clearLatest() {
	clear(o.latest)
	clear(o.order)
	o.order = o.order[:0]
}

// coalesce puts l in the place of the one with its key, which it returns, or behind the others.
func (o *outbox) coalesce(l *letter) (superseded *Delivery) {
	if old := o.latest[l.key]; old != nil {
		superseded = old.sent
		old.method, old.params, old.sent = l.method, l.params, l.sent
		return superseded
	}
	if o.latest == nil {
		o.latest = map[string]*letter{}
	}
	o.latest[l.key] = l
	o.order = append(o.order, l)
	return nil
}

// batchSize is how many bytes the writer writes at once, if there are so many: a pipe of Linux.
const batchSize = 64 << 10

// take returns the letters to be written next, at least one if there is any, and marks them as gone.
func (o *outbox) take(batch []*letter, guard func() *ctxshutdown.Guard) []*letter {
	if len(o.queue) == 0 && len(o.order) > 0 {
		for _, l := range o.order {
			l.guard = guard()
		}
		o.queue = append(o.queue, o.order...)
		o.clearLatest()
	}
	n, size := 0, 0
	for _, l := range o.queue {
		if !l.gone {
			if size += headerRoom + 64 + len(l.method) + len(l.params); len(batch) > 0 && size > batchSize {
				break
			}
			l.gone = true
			batch = append(batch, l)
		}
		n++
	}
	o.drop(n)
	return batch
}

// restore puts what could not be written back to the front, for whoever disposes of the queue.
func (o *outbox) restore(batch []*letter) {
	for _, l := range batch {
		l.gone = false
	}
	o.queue = append(slices.Clone(batch), o.queue...)
}

// drop removes the first n.
func (o *outbox) drop(n int) {
	rest := copy(o.queue, o.queue[n:])
	clear(o.queue[rest:])
	o.queue = o.queue[:rest]
}

// seal fails coalesced notifications from now on, and returns those that wait.
func (o *outbox) seal() []*letter {
	o.sealed = true
	failed := append([]*letter(nil), o.order...)
	o.clearLatest()
	return failed
}

// empty returns what is queued.
func (o *outbox) empty() (out []*letter) {
	for _, l := range o.queue {
		if !l.gone {
			l.gone = true
			out = append(out, l)
		}
	}
	o.drop(len(o.queue))
	return out
}
