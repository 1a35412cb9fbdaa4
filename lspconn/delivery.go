package lspconn

import "context"

// A Delivery reports the outcome of a notification.
type Delivery struct {
	done chan struct{}
	err  error // the outcome; set before done is closed
}

func newDelivery() *Delivery { return &Delivery{done: make(chan struct{})} }

func (d *Delivery) complete(err error) {
	d.err = err
	close(d.done)
}

// Done returns a channel that is closed when the outcome of the notification is known.
func (d *Delivery) Done() <-chan struct{} { return d.done }

// Wait waits until the outcome of the notification is known, or ctx ends. It returns
//
//   - nil if the notification has been written,
//   - [ErrSuperseded] if a newer notification with the same key replaced it,
//   - an error that matches [ErrClosing] if the connection closed or failed first,
//   - the cause of ctx if ctx ended first; the notification may still be written then.
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
