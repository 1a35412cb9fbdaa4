// Package outbox sends mails in the background. Step 8 of docs/guide.md tests it at every stop.
package outbox

import (
	"context"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// An Outbox sends every mail that it has accepted, even if its scope is stopped in between.
type Outbox struct {
	scope *ctxshutdown.Swansong
	send  func(ctx context.Context, text string)
	mails chan mail
}

type mail struct {
	text  string
	guard *ctxshutdown.Guard // a guard that is held until the mail is sent
}

// New returns an outbox with the given number of workers. They end with the Work context of scope.
func New(scope *ctxshutdown.Swansong, workers int, send func(ctx context.Context, text string)) *Outbox {
	o := &Outbox{scope: scope, send: send, mails: make(chan mail)}
	for range workers {
		go o.work()
	}
	return o
}

// Accept waits for a free worker, and reports whether the mail will be sent.
func (o *Outbox) Accept(text string) bool {
	g, ok := o.scope.TryGuard()
	if !ok {
		return false
	}
	if !ctxshutdown.Send(o.scope.Work(), o.mails, mail{text, g}) {
		g.Release() // the drain was cut short
		return false
	}
	return true
}

func (o *Outbox) work() {
	for m := range ctxshutdown.All(o.scope.Work(), o.mails) {
		o.send(o.scope.Work(), m.text)
		m.guard.Release()
	}
}
