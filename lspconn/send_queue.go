package lspconn

import (
	"encoding/json"
	"slices"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// A sendQueue holds the messages that have been accepted and not yet written. It is guarded by the
// connection's mu.
//
//	            last                               first
//	Call, Notify ──▶ │ ordered │ a │ b │ ordered │ a │ ──▶ write loop ──▶ stdin
//	NotifyLatest ──▶ │         └─ run ─┘         └ run
//
// Messages of Call and Notify, and responses to requests of the server, are ordered: they are
// written in the order in which they were queued. Notifications of NotifyLatest are coalesced: they
// form runs between ordered messages, with at most one notification per key in a run. The run at
// the end of the queue is open: a new notification replaces the one with its key there. A coalesced
// notification never moves past an ordered message, so a request is always written after the
// notifications that preceded it. Withdrawing an ordered message merges the runs on both sides of
// it.
//
// Each message leaves the queue exactly once, and the code that removes it completes it. The write
// loop puts back what it could not write.
type sendQueue struct {
	first, last      *queuedMessage
	open             map[string]*queuedMessage // the notifications at the end of the queue that newer ones may replace, by key
	refusesCoalesced bool                      // NotifyLatest fails from now on
	discarded        bool                      // every message fails from now on, except replies
}

// A queuedMessage is a message on its way to the write loop.
type queuedMessage struct {
	method    string
	frame     []byte // the encoded message; the sending goroutine encodes it, so the queue does not refer to params
	id        int64  // the request id of a call
	key       string // the key that was passed to NotifyLatest
	coalesced bool
	call      *call     // the call of a request, which fails if the request is never written; nil for other messages
	delivery  *Delivery // set for a notification; completed when it has been written or never will be
	guard     *ctxshutdown.Guard
	usesSlot  bool // whether the message counts against QueueLimit
	reply     bool // whether the message is a response to a request of the server; no caller waits for it
	dequeued  bool

	before, after *queuedMessage // the neighbours of the message in the queue
}

// newNotification returns a notification that is written in the order of queueing, and whose
// Delivery no goroutine waits for.
func newNotification(method string, params json.RawMessage, guard *ctxshutdown.Guard) *queuedMessage {
	return &queuedMessage{method: method, frame: frame(-1, method, params), delivery: newDelivery(), guard: guard}
}

// enqueue appends a message that is not one of NotifyLatest. From now on, NotifyLatest no longer
// replaces the notifications before it.
func (q *sendQueue) enqueue(m *queuedMessage) {
	clear(q.open)
	q.link(q.last, m)
}

// coalesce queues m, a notification of NotifyLatest. If the end of the queue, after all other
// messages, has a notification with the same key, m takes its place, and coalesce returns the
// Delivery of the replaced one. Otherwise m is appended, and coalesce returns nil.
func (q *sendQueue) coalesce(m *queuedMessage) (superseded *Delivery) {
	if old := q.open[m.key]; old != nil {
		superseded = old.delivery
		old.method, old.frame, old.delivery = m.method, m.frame, m.delivery
		return superseded
	}
	if q.open == nil {
		q.open = map[string]*queuedMessage{}
	}
	q.open[m.key] = m
	q.link(q.last, m)
	return nil
}

// withdraw removes m, a message that is not one of NotifyLatest, from the queue. The runs of
// notifications of NotifyLatest before and after m become one run. If both contain a notification
// with the same key, the newer one remains; withdraw returns the older ones.
func (q *sendQueue) withdraw(m *queuedMessage) (superseded []*queuedMessage) {
	prev, next := m.before, m.after
	q.unlink(m)
	newer := map[string]bool{}
	for ; next != nil && next.coalesced; next = next.after {
		newer[next.key] = true
	}
	for prev != nil && prev.coalesced {
		old := prev
		prev = prev.before
		if newer[old.key] {
			q.unlink(old)
			superseded = append(superseded, old)
		} else if next == nil { // the merged run ends the queue, so newer notifications may replace those in it
			q.open[old.key] = old
		}
	}
	return superseded
}

// batchSize is the number of bytes that the write loop collects for one write: the capacity of a
// Linux pipe.
const batchSize = 64 << 10

// take removes the messages that are to be written next from the queue and appends them to batch.
// If the queue is not empty, it takes at least one. Each of these messages holds a guard until it
// has been written.
func (q *sendQueue) take(batch []*queuedMessage, guard func() *ctxshutdown.Guard) []*queuedMessage {
	for size := 0; q.first != nil; {
		m := q.first
		if size += len(m.frame); len(batch) > 0 && size > batchSize {
			break
		}
		q.unlink(m)
		if m.coalesced {
			m.guard = guard()
		}
		batch = append(batch, m)
	}
	return batch
}

// restore returns messages to the front of the queue after their write has failed.
func (q *sendQueue) restore(batch []*queuedMessage) {
	for _, m := range slices.Backward(batch) {
		q.link(nil, m)
	}
}

// refuseCoalesced makes NotifyLatest fail from now on. It removes the notifications of NotifyLatest
// at the end of the queue, and returns them.
func (q *sendQueue) refuseCoalesced() (removed []*queuedMessage) {
	q.refusesCoalesced = true
	for q.last != nil && q.last.coalesced && q.open[q.last.key] == q.last {
		removed = append(removed, q.last)
		q.unlink(q.last)
	}
	return removed
}

// removeAll removes all messages, or all that are not replies, and returns them.
func (q *sendQueue) removeAll(replies bool) (removed []*queuedMessage) {
	for m := q.first; m != nil; {
		next := m.after
		if replies || !m.reply {
			q.unlink(m)
			removed = append(removed, m)
		}
		m = next
	}
	return removed
}

// link inserts m into the queue, directly behind the previous message, or at the front if previous
// is nil.
func (q *sendQueue) link(previous, m *queuedMessage) {
	m.dequeued, m.before, m.after = false, previous, q.first
	if previous != nil {
		m.after = previous.after
		previous.after = m
	} else {
		q.first = m
	}
	if m.after != nil {
		m.after.before = m
	} else {
		q.last = m
	}
}

func (q *sendQueue) unlink(m *queuedMessage) {
	if m.before != nil {
		m.before.after = m.after
	} else {
		q.first = m.after
	}
	if m.after != nil {
		m.after.before = m.before
	} else {
		q.last = m.before
	}
	if m.coalesced && q.open[m.key] == m {
		delete(q.open, m.key)
	}
	m.dequeued, m.before, m.after = true, nil, nil
}
