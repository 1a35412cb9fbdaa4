package lspconn

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// An outbox is what has been accepted and not yet written. It is kept under the connection's mu.
//
//	            last                               first
//	Call, Notify ──▶ │ ordered │ a │ b │ ordered │ a │ ──▶ writer ──▶ stdin
//	NotifyLatest ──▶ │         └─ run ─┘         └ run
//
// Coalesced notifications stand in runs between the ordered letters, those of Call and Notify. In a run there is one of a
// key; the last run is open, which means that the next one with its key takes its place. No coalesced one passes an ordered
// one, so a request sees the state that it was made in, and the latest one replaces only what nobody can have counted on.
// An ordered one that is withdrawn takes its memory along, and the runs before and after it become one.
//
// Every letter leaves it once: to the writer, to whoever withdraws it, or to whoever disposes of it; the writer gives back
// what it could not write. Whoever takes it out settles it, so everybody is answered exactly once.
type outbox struct {
	first, last *letter
	open        map[string]*letter // the last run
	sealed      bool               // coalesced notifications are refused
	disposed    bool               // all are
}

// A letter is a message on its way to the writer.
type letter struct {
	method    string
	frame     []byte // encoded by whoever sends it: their params are not kept
	id        int64  // of a call
	key       string // of a coalesced one
	coalesced bool
	call      *call     // answered if the letter is never written
	sent      *Delivery // settled when the letter is written, or never will be
	guard     *ctxshutdown.Guard
	room      bool // counts against QueueLimit
	gone      bool // out of the queue

	before, after *letter // in the queue
}

// notice returns an ordered notification for which nobody waits.
func notice(method string, params json.RawMessage, guard *ctxshutdown.Guard) *letter {
	return &letter{method: method, frame: frame(-1, method, params), sent: newDelivery(), guard: guard}
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

// enqueue appends an ordered letter.
func (o *outbox) enqueue(l *letter) {
	clear(o.open)
	o.link(o.last, l)
}

// coalesce puts l in the place of the one with its key, whose Delivery it returns, or behind the others.
func (o *outbox) coalesce(l *letter) (superseded *Delivery) {
	if old := o.open[l.key]; old != nil {
		superseded = old.sent
		old.method, old.frame, old.sent = l.method, l.frame, l.sent
		return superseded
	}
	if o.open == nil {
		o.open = map[string]*letter{}
	}
	o.open[l.key] = l
	o.link(o.last, l)
	return nil
}

// withdraw takes out an ordered letter. It returns the coalesced ones before it that those after it supersede.
func (o *outbox) withdraw(l *letter) (superseded []*letter) {
	early, late := l.before, l.after
	o.unlink(l)
	latest := map[string]bool{}
	for ; late != nil && late.coalesced; late = late.after {
		latest[late.key] = true
	}
	for early != nil && early.coalesced {
		old := early
		early = early.before
		if latest[old.key] {
			o.unlink(old)
			superseded = append(superseded, old)
		} else if late == nil {
			o.open[old.key] = old
		}
	}
	return superseded
}

// batchSize is how many bytes the writer writes at once, if there are so many: a pipe of Linux.
const batchSize = 64 << 10

// take returns the letters to be written next, at least one if there is any. Each has a guard until it is written.
func (o *outbox) take(batch []*letter, guard func() *ctxshutdown.Guard) []*letter {
	for size := 0; o.first != nil; {
		l := o.first
		if size += len(l.frame); len(batch) > 0 && size > batchSize {
			break
		}
		o.unlink(l)
		if l.coalesced {
			l.guard = guard()
		}
		batch = append(batch, l)
	}
	return batch
}

// restore puts what could not be written back to the front, for whoever disposes of the queue.
func (o *outbox) restore(batch []*letter) {
	for _, l := range slices.Backward(batch) {
		o.link(nil, l)
	}
}

// seal fails coalesced notifications from now on, and returns those that nothing ordered waits behind.
func (o *outbox) seal() (failed []*letter) {
	o.sealed = true
	for o.last != nil && o.last.coalesced && o.open[o.last.key] == o.last {
		failed = append(failed, o.last)
		o.unlink(o.last)
	}
	return failed
}

// empty returns what is queued.
func (o *outbox) empty() (out []*letter) {
	for o.first != nil {
		out = append(out, o.first)
		o.unlink(o.first)
	}
	return out
}

// link puts l behind another one, or in front of all where that is nil.
func (o *outbox) link(before, l *letter) {
	l.gone, l.before, l.after = false, before, o.first
	if before != nil {
		l.after = before.after
		before.after = l
	} else {
		o.first = l
	}
	if l.after != nil {
		l.after.before = l
	} else {
		o.last = l
	}
}

func (o *outbox) unlink(l *letter) {
	if l.before != nil {
		l.before.after = l.after
	} else {
		o.first = l.after
	}
	if l.after != nil {
		l.after.before = l.before
	} else {
		o.last = l.before
	}
	if l.coalesced && o.open[l.key] == l {
		delete(o.open, l.key)
	}
	l.gone, l.before, l.after = true, nil, nil
}
