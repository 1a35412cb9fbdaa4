package lspconn

import "context"

// notify calls OnNotify for a notification of the server. It reports whether its caller must
// deliver the next message; otherwise another goroutine does.
func (b *inbox) notify(m message) (ordered bool) {
	h := &handling{inbox: b, answered: true}
	if b.begin(h) != nil {
		return true
	}
	c := b.conn
	g := c.notifyScope.Guard()
	defer g.Release()
	ctx := context.WithValue(c.notifyScope, handlingKey{}, h)
	c.catchPanic("OnNotify", *m.Method, func() {
		c.server.OnNotify(ctx, *m.Method, m.Params)
	}, func(p *PanicError) {
		if p != nil {
			// After this call another goroutine delivers the next messages: if the handler has
			// called runtime.Goexit, this goroutine ends.
			b.stopHandlers()
		}
		ordered = b.finish(h)
	})
	return ordered
}
