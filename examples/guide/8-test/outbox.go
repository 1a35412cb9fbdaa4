// Package outbox sends mails in the background. It is a package, and no program, because its point is its test.
package outbox

import (
	"context"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// An Outbox sends the mails that it has accepted, those that wait when the scope is told to stop too.
type Outbox struct {
	scope *ctxshutdown.Swansong
	send  func(ctx context.Context, text string)
	mails chan mail
}

type mail struct {
	text  string
	guard *ctxshutdown.Guard // held until it has been sent
}

// New returns an outbox with so many workers, which end with the drain of scope.
func New(scope *ctxshutdown.Swansong, workers int, send func(ctx context.Context, text string)) *Outbox {
	o := &Outbox{scope: scope, send: send, mails: make(chan mail)}
	for range workers {
		go o.work()
	}
	return o
}

// Accept waits for a worker, and reports whether the mail is going to be sent.
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
