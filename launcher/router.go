package launcher

import (
	"context"
	"errors"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// A Router is told who takes on work. Its calls come one at a time for a process, from any goroutine, and their contexts
// end after two seconds. One that fails, or takes longer, is an event of the kind [RouterError]. Add is then called again,
// and until it has succeeded nobody counts on the process; Remove is not, and who is to be stopped is. An Add that took too
// long, and an Add that failed, may be followed by a Remove, or by none. To panic is to fail.
type Router interface {
	Add(ctx context.Context, i Instance) error    // it is ready
	Remove(ctx context.Context, i Instance) error // it is about to be stopped, or has ended
}

// An Instance is a process as a router knows it.
type Instance struct {
	Group, ID string
	PID       int
	Socket    string // what {socket} is in the configuration
}

// routerPatience is how long a router may take.
const routerPatience = 2 * time.Second

// want notes whether the process should be in routing. It never should again once it should not.
func (p *process) want(routed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.routed = routed
}

// join has the router take the process in, and again where it fails. Until then the process is not counted on: another one
// that is stopped because this one is there would be missed.
func (p *process) join() {
	for p.route() != nil {
		p.settle()
		select {
		case <-time.After(p.rules().Shutdown.Poll):
		case <-p.quit:
			return
		}
	}
	p.settle()
}

// leave has it let the process go, and does not insist.
func (p *process) leave() {
	p.want(false)
	p.route()
}

// route tells the router, if that is news to it.
func (p *process) route() error {
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
	if r := p.manager.cfg.Router; r != nil {
		ctx, cancel := context.WithTimeout(context.Background(), routerPatience)
		defer cancel()
		i := Instance{Group: p.group, ID: p.id, PID: p.proc.Pid(), Socket: p.serviceSocket()}
		err = tellRouter(ctx, "Router."+name, func(ctx context.Context) error { return call(r, ctx, i) }, func(late *panicError) {
			p.tell(Event{Kind: RouterError, Message: what + ", too late: " + late.Error(), Stack: string(late.stack)})
		})
	}
	if err != nil {
		p.tell(Event{Kind: RouterError, Message: what + ": " + err.Error(), Stack: stackOf(err)})
		if in {
			return err
		}
	}
	p.mu.Lock()
	p.status.Routed = in
	p.mu.Unlock()
	p.changed(p)
	return nil
}

// tellRouter calls a router, and waits no longer than ctx lasts. Its panic is an error, and so is one in the text of its
// error; late is told of one that comes when nobody waits any more.
func tellRouter(ctx context.Context, callback string, call func(context.Context) error, late func(*panicError)) error {
	_, err := ctxshutdown.Call(ctx, func(ctx context.Context) (struct{}, error) {
		result := make(chan error, 1)
		go func() { // for a Goexit, of which Call would not know whose it was
			var err error
			protect(callback, func() {
				if err = call(ctx); err != nil {
					err = errors.New(err.Error()) // its Error may panic, too
				}
			}, func(p *panicError) {
				if p != nil {
					err = p
				}
				result <- err
			})
		}()
		err := <-result
		if p, ok := err.(*panicError); ok && ctx.Err() != nil {
			late(p)
		}
		return struct{}{}, err
	})
	return err
}
