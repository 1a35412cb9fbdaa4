package launcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/process"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// ErrStopped matches errors about an order that a stopped group cannot follow; see
// [Manager.StopGroup].
var ErrStopped = errors.New("launcher: the group is stopped by order")

// StopGroup stops all processes of a group, and waits until they have ended. No process of the group
// is started before [Manager.StartGroup]: not by a reload, not by a restart of a group that it
// depends on, and not by the next launcher if this one is killed. A group that depends on a stopped
// group keeps running, but does not start. A roll of the group ends with [ErrSuperseded].
func (m *Manager) StopGroup(ctx context.Context, name, reason string) error {
	return m.orderGroup(ctx, name, (*group).stopAll, reason)
}

// StartGroup undoes [Manager.StopGroup], and waits until the group is healthy. What has
// failed before counts no more: a group that was given up begins again, and a process that waits for the
// end of a pause is started at once.
func (m *Manager) StartGroup(ctx context.Context, name, reason string) error {
	return m.orderGroup(ctx, name, (*group).startAgain, reason)
}

// Scale has the group run n processes, of whatever revision, and waits until n are ready and the
// others have ended. That holds until a reload changes Desired, and for the next launcher only if it
// adopts processes of the group. With more processes than are configured, MinHealthy rises by the
// same number. Scale does not start a stopped group. It returns an error if a newer order or a reload
// changes the number before.
func (m *Manager) Scale(ctx context.Context, name string, n int, reason string) error {
	return m.orderGroup(ctx, name, func(g *group, reason string) (*rollResult, error) { return g.scale(n, reason) }, reason)
}

// An order is what an operator wants of a group. It is done when the health of the group shows that
// it was followed, or that it cannot be.
type order struct {
	isDone func(Health) (bool, error)
	result *rollResult
}

// orderGroup gives a group an order, and waits until it is done.
func (m *Manager) orderGroup(ctx context.Context, name string, give func(g *group, reason string) (*rollResult, error), reason string) error {
	g, err := m.group(name)
	if err != nil {
		return err
	}
	result, err := give(g, reason)
	if err != nil {
		return err
	}
	return g.awaitOrder(ctx, result)
}

// awaitOrder waits until an order is done and in the state file, unless that cannot be written, of
// which an alarm tells.
func (g *group) awaitOrder(ctx context.Context, r *rollResult) error {
	select {
	case <-r.done:
		g.manager.host.StateFile.Flush(ctx.Done())
		return r.err
	case <-g.scope.Done():
		return fmt.Errorf("launcher: group %q is stopping: %w", g.name, context.Cause(g.scope))
	case <-ctx.Done():
		return fmt.Errorf("launcher: waiting for %s, which goes on: %w", g.name, context.Cause(ctx))
	}
}

// accept records an order that the controller carries out from now on. g.mu is held.
func (g *group) accept(what, reason string, isDone func(Health) (bool, error)) *rollResult {
	g.manager.host.StateFile.Changed()
	g.publish(Event{Kind: Ordered, Message: what + ": " + reason})
	o := order{isDone, newRollResult()}
	g.controller.orders = append(g.controller.orders, o)
	g.controller.settleOrders(g.controller.health(time.Now()))
	g.wake()
	return o.result
}

// settleOrders ends the wait for the orders that are done.
func (c *controller) settleOrders(h Health) {
	c.orders = slices.DeleteFunc(c.orders, func(o order) bool {
		done, err := o.isDone(h)
		if done || err != nil {
			o.result.set(err)
		}
		return done || err != nil
	})
}

// stopAll stops the group by order.
func (g *group) stopAll(reason string) (*rollResult, error) {
	g.manager.host.Gate.Enter()
	defer g.manager.host.Gate.Leave()
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.checkRunning(); err != nil {
		return nil, err
	}
	g.controller.endRoll(&RollError{Group: g.name, Cause: fmt.Errorf("%w: %s", ErrSuperseded, reason)})
	g.controller.setStopped(true)
	return g.accept("stopped", reason, func(h Health) (bool, error) {
		if !h.Stopped {
			return false, fmt.Errorf("launcher: group %q: a newer order has started it again", g.name)
		}
		return h.Total == 0, nil
	}), nil
}

// startAgain starts the group if it was stopped or given up.
func (g *group) startAgain(reason string) (*rollResult, error) {
	g.manager.host.Gate.Enter()
	defer g.manager.host.Gate.Leave()
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.checkRunning(); err != nil {
		return nil, err
	}
	g.controller.setStopped(false)
	g.controller.forgetFailures()
	return g.accept("started", reason, g.isReady(func(h Health) bool { return h.Healthy })), nil
}

// scale has the group run n processes.
func (g *group) scale(n int, reason string) (*rollResult, error) {
	g.manager.host.Gate.Enter()
	defer g.manager.host.Gate.Leave()
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.checkRunning(); err != nil {
		return nil, err
	}
	c := g.controller
	to := *c.config()
	to.MinHealthy = max(0, to.RollConfig(n).MinHealthy)
	to.Desired = n
	if err := invalid(spec.CheckGroup(to, g.manager.host.Dir), []string{g.name}); err != nil {
		return nil, err
	}
	c.scale(n)
	isReady := g.isReady(func(h Health) bool { return h.Ready == h.Desired && h.Total == h.Desired })
	isDone := func(h Health) (bool, error) {
		if w := c.revisions.Wanted(); w.Number() != n {
			return false, fmt.Errorf("launcher: group %q: a newer order or a reload has changed the number of its processes from %d to %d", g.name, n, w.Number())
		}
		return isReady(h)
	}
	if c.revisions.Wanted().Shortfall.Stopped {
		isDone = func(Health) (bool, error) { return true, nil }
	}
	return g.accept(fmt.Sprintf("scaled to %d", n), reason, isDone), nil
}

// isReady returns a function that returns true when the group is as an order wants it, and an error
// if it cannot become so without another order. An order to a job does not wait for it to be ready.
func (g *group) isReady(is func(Health) bool) func(Health) (bool, error) {
	job := g.controller.config().Job
	return func(h Health) (bool, error) {
		switch {
		case job:
			return true, nil
		case h.Stopped:
			return false, fmt.Errorf("%w: group %q", ErrStopped, g.name)
		case h.GivenUp:
			return false, g.controller.givenUpError()
		}
		return is(h), nil
	}
}

// setStopped records whether a user has ordered the group to stop, in all revisions of the group.
func (c *controller) setStopped(stopped bool) {
	for _, r := range c.revisions.ByNumber {
		r.Shortfall.Stopped = stopped
	}
}

// scale records an order to have n processes, in both revisions if a roll is in progress.
func (c *controller) scale(n int) {
	c.degraded = degradation{}
	c.revisions.Wanted().Scale(n)
	if c.roll != nil && !c.roll.OnlyForward() {
		c.revisions.ByNumber[c.roll.Other()].Scale(n)
	}
}

// Signal sends a signal to a process, or to all processes of a group, but not to what these have
// started. It returns the ids of the processes. A process that ends because of the signal has ended
// by itself: the restart policy says whether it is replaced. An error matches [ErrNotFound] if
// nothing has this name.
func (m *Manager) Signal(name string, sig syscall.Signal, reason string) (ids []string, err error) {
	var all []*process.Process
	if g, failed := m.group(name); failed == nil {
		all = g.processes()
	} else {
		p, err := m.process(name)
		if err != nil {
			return nil, fmt.Errorf("%w: neither a group nor a process has the name %q; launcher status lists them", ErrNotFound, name)
		}
		all = append(all, p.Process)
	}
	for _, p := range all {
		signalled, failed := p.Signal(sig, reason)
		if signalled {
			ids = append(ids, p.ID())
		}
		err = errors.Join(err, failed)
	}
	if len(ids) == 0 && err == nil {
		err = fmt.Errorf("launcher: no process of %q runs, so none was signalled", name)
	}
	slices.Sort(ids)
	return ids, err
}
