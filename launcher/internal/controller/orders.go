package controller

import (
	"fmt"
	"slices"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/events"
	"github.com/swansong-go/swansong/launcher/internal/revision"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// A pendingOrder is an order that was accepted, and whose result has not been set. It is done when
// the health of the group shows that it was followed, or that it cannot be.
type pendingOrder struct {
	isDone func(Health) (bool, error)
	result *Result
}

// settleOrders ends the wait for the orders that are done.
func (c *Controller) settleOrders(h Health) {
	c.pending = slices.DeleteFunc(c.pending, func(o pendingOrder) bool {
		done, err := o.isDone(h)
		if done || err != nil {
			o.result.set(err)
		}
		return done || err != nil
	})
}

// accept publishes an order that holds from now on, and returns what to wait for.
func (c *Controller) accept(what, reason string, isDone func(Health) (bool, error)) *Result {
	c.host.Record()
	c.host.Publish(events.Event{Kind: events.Ordered, Message: what + ": " + reason})
	o := pendingOrder{isDone, newResult()}
	c.pending = append(c.pending, o)
	c.settleOrders(c.Health(time.Now(), false))
	return o.result
}

// StopAll stops the group for an operator.
func (c *Controller) StopAll(reason string) *Result {
	c.endRoll(&RollError{Group: c.name, Cause: fmt.Errorf("%w: %s", ErrSuperseded, reason)})
	c.setStopped(true)
	return c.accept("stopped", reason, func(h Health) (bool, error) {
		if !h.Stopped {
			return false, fmt.Errorf("launcher: group %q: a newer order has started it again", c.name)
		}
		return h.Total == 0, nil
	})
}

// StartAgain starts the group if it was stopped or given up.
func (c *Controller) StartAgain(reason string) *Result {
	c.setStopped(false)
	c.forgetFailures()
	return c.accept("started", reason, c.isReady(func(h Health) bool { return h.Healthy }))
}

// Scale has the group run n processes. If a roll is in progress, that holds in both revisions.
func (c *Controller) Scale(n int, reason string) *Result {
	c.degraded = degradation{}
	c.revisions.Wanted().Scale(n)
	if c.roll != nil && !c.roll.OnlyForward() {
		c.revisions.ByNumber[c.roll.Other()].Scale(n)
	}
	isReady := c.isReady(func(h Health) bool { return h.Ready == h.Desired && h.Total == h.Desired })
	isDone := func(h Health) (bool, error) {
		if w := c.revisions.Wanted(); w.Number() != n {
			return false, fmt.Errorf("launcher: group %q: a newer order or a reload has changed the number of its processes from %d to %d", c.name, n, w.Number())
		}
		return isReady(h)
	}
	if c.revisions.Wanted().Shortfall.Stopped {
		isDone = func(Health) (bool, error) { return true, nil }
	}
	return c.accept(fmt.Sprintf("scaled to %d", n), reason, isDone)
}

// isReady returns a function that reports whether the group has become what an order wants, by the
// test that is passed to isReady. The function returns an error if the group cannot become that
// without another order. For a job it returns true at once, because an order to a job does not wait
// until the job is ready.
func (c *Controller) isReady(is func(Health) bool) func(Health) (bool, error) {
	job := c.Config().Job
	return func(h Health) (bool, error) {
		switch {
		case job:
			return true, nil
		case h.Stopped:
			return false, fmt.Errorf("%w: group %q", ErrStopped, c.name)
		case h.GivenUp:
			return false, c.givenUpError()
		}
		return is(h), nil
	}
}

// setStopped records whether a user has ordered the group to stop, in all revisions of the group.
func (c *Controller) setStopped(stopped bool) {
	for _, r := range c.revisions.ByNumber {
		r.Shortfall.Stopped = stopped
	}
}

// OnStopOrder records that a process is being stopped because an operator has ordered that. With
// noReplacement the group has one process fewer from then on.
func (c *Controller) OnStopOrder(p Process, noReplacement bool) {
	i := c.instances.find(p)
	if i == nil {
		return
	}
	// Scale down even if the process is stopping already: the group may have stopped it in order
	// to replace it.
	if noReplacement && !i.noReplacement {
		i.noReplacement = true
		c.scaleDown(i)
		c.host.Record()
	}
	i.accounted = true // a process that an operator has stopped has not failed, however it ends
}

// scaleDown lowers the number of desired processes by one, for both revisions of a roll. A revision
// in which the process counts as finished is left alone, because it has one process fewer already.
func (c *Controller) scaleDown(i *instance) {
	lower := func(number int) {
		if r := c.revisions.ByNumber[number]; r.Desired() > 0 && i.finishedIn != number {
			r.Shortfall.ScaledDown++
		}
	}
	lower(c.revisions.Current)
	if c.roll == nil {
		return
	}
	c.roll.ScaleDown(c.revisions.Wanted().Rules(), c.view(time.Now()), i.ID())
	if !c.roll.OnlyForward() {
		lower(c.roll.Other())
	}
}

// startRun makes a job run once more, with a configuration that becomes a new revision. It stops
// the processes that still run, and those that have finished no longer count. There is no roll: the
// processes of a job need not be replaced one by one, because no client relies on their being
// ready.
func (c *Controller) startRun(cfg spec.Group, source any, reason string) {
	was := c.revisions.Wanted()
	number, is := c.revisions.Unused(), &revision.Revision{Config: cfg, Source: source, Shortfall: was.Shortfall.Orders(cfg.Desired == was.Config.Desired)}
	// Jobs have no rolls. But if this reload has made a job of the group, the group may have a roll
	// from before, which ends here.
	c.endRoll(&RollError{Group: c.name, Cause: fmt.Errorf("%w: %s", ErrSuperseded, reason)})
	c.revisions = revision.Set{Current: number, ByNumber: map[int]*revision.Revision{number: is}}
	c.forgetFailures()
	c.host.Record()
	for _, i := range c.instances.sorted() {
		if !i.accounted {
			c.stop(i, reason, false)
		}
	}
}
