package lspconn

import "github.com/swansong-go/swansong/ctxshutdown"

// maxNotifications is the number of notifications that may wait for OnNotify. If there are more,
// the read loop blocks.
const maxNotifications = 1024

// A notificationQueue passes notifications to Server.OnNotify in order, one at a time.
type notificationQueue struct {
	conn *Conn
	ch   chan message // nil if Server.OnNotify is nil
}

func newNotificationQueue(c *Conn) *notificationQueue {
	q := &notificationQueue{conn: c}
	if c.server.OnNotify != nil {
		q.ch = make(chan message, maxNotifications)
		scope, cancel := ctxshutdown.WithCancel(c.scope, ctxshutdown.WithName("notifications"))
		_ = cancel // not called, because the scope lasts as long as the connection
		g := scope.Guard()
		go func() {
			defer g.Release()
			q.handle()
		}()
	}
	return q
}

// handle calls OnNotify for each notification until the queue is closed. After a panic of OnNotify
// it discards all further notifications, so that add does not block.
func (q *notificationQueue) handle() {
	defer func() {
		for range q.ch {
		}
	}()
	for m := range q.ch {
		ok := false
		q.conn.catchPanic("OnNotify", *m.Method, func() {
			q.conn.server.OnNotify(*m.Method, m.Params)
		}, func(p *PanicError) { ok = p == nil })
		if !ok {
			return
		}
	}
}

// add appends a notification. It blocks while the queue is full. If the process is reaped while add
// waits, add drops the notification, so that a slow OnNotify does not delay the end of the
// connection.
func (q *notificationQueue) add(m message) {
	if q.ch == nil {
		return
	}
	select {
	case q.ch <- m:
		return
	default:
	}
	select {
	case q.ch <- m:
	case <-q.conn.process.Done():
	}
}

func (q *notificationQueue) close() {
	if q.ch != nil {
		close(q.ch)
	}
}
