package process

import (
	"context"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/callback"
	"github.com/swansong-go/swansong/launcher/internal/events"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// A Router sends requests to processes; see launcher.Router. Its calls may fail, hang and panic.
type Router interface {
	Add(ctx context.Context, i Instance) error
	Remove(ctx context.Context, i Instance) error
}

// An Instance is a process as a [Router] knows it.
type Instance struct {
	Group, ID string
	PID       int
	Socket    string // the value of {socket} in the configuration
	Port      int    // the value of {port} in the configuration; 0 if it is not used
}

// setRouted records whether the process should be in routing.
//
// It only records what is wanted; route then makes the call of the router for it. So an order to
// leave routing that comes while the router is being called is not lost: the next call of route
// sees it.
func (p *Process) setRouted(routed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.routed = routed
}

// register adds the process to routing, and retries until that has succeeded or the process has
// ended. Until then the process does not count as available, so that no other process is stopped
// because of it.
func (p *Process) register() {
	for p.route() != nil {
		p.markRouteTried()
		select {
		case <-time.After(p.Config().Shutdown.Poll):
		case <-p.quit:
			return
		}
	}
	p.markRouteTried()
}

// deregister removes the process from routing, and does not retry.
func (p *Process) deregister() {
	p.setRouted(false)
	p.route()
}

// route calls the router, unless the process is already added or removed as it should be.
//
// The mutex routing serializes the calls for one process: a late Add must not follow a Remove, or
// the router would keep a process that has ended. mu is not held during the call, which can take
// RouterTimeout. A failed Remove is published and counts as done, because a router that is down
// must not hold up a stop.
func (p *Process) route() error {
	p.routing.Lock()
	defer p.routing.Unlock()
	p.mu.Lock()
	in, was := p.routed, p.status.Routed
	p.mu.Unlock()
	if in == was {
		return nil
	}
	what, name, call := "remove", "Remove", Router.Remove
	if in {
		what, name, call = "add", "Add", Router.Add
	}
	var err error
	if r := p.group.Router; r != nil {
		ctx, cancel := context.WithTimeout(context.Background(), spec.RouterTimeout)
		defer cancel()
		i := Instance{Group: p.group.Name, ID: p.id, PID: p.proc.Pid(), Socket: p.sockets.service, Port: p.port}
		err = callback.CallContext(ctx, "Router."+name, func(ctx context.Context) error { return call(r, ctx, i) }, func(late *callback.PanicError) {
			p.publish(events.Event{Kind: events.RouterError, Message: what + ", after its timeout: " + late.Error(), Stack: string(late.Stack)})
		})
	}
	if err != nil {
		p.publish(events.Event{Kind: events.RouterError, Message: what + ": " + err.Error(), Stack: callback.StackOf(err)})
		if in {
			return err
		}
	}
	p.mu.Lock()
	p.status.Routed = in
	p.mu.Unlock()
	p.group.Changed(p)
	return nil
}
