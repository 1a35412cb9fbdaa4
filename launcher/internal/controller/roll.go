package controller

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/events"
	"github.com/swansong-go/swansong/launcher/internal/revision"
	"github.com/swansong-go/swansong/launcher/internal/roll"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// Restart rolls the group to the configuration that it has now. It undoes no reload that came
// before.
func (c *Controller) Restart(reason string) (*Result, error) {
	wanted := c.revisions.Wanted()
	if wanted.Shortfall.Stopped {
		return nil, fmt.Errorf("%w: group %q", ErrStopped, c.name)
	}
	return c.StartRoll(wanted.Config, wanted.Source, reason), nil
}

// StartRoll begins to replace all processes by processes of a configuration. It supersedes a roll
// that is under way or paused. Of a job, it stops the processes and runs each of them once more.
//
// A group that has not started a process yet needs no roll: it starts with the configuration. For
// such a group and for a job, the Result is known at once.
func (c *Controller) StartRoll(cfg spec.Group, source any, reason string) *Result {
	switch {
	case c.isUnstarted():
		wanted := c.revisions.Wanted()
		// Orders(true) forgets which processes had finished under an earlier launcher, so they are
		// started again.
		wanted.Source, wanted.Shortfall = source, wanted.Shortfall.Orders(true)
		c.forgetFailures()
		c.apply(cfg)
		c.host.Record()
		return noRoll(c.describeWait())
	case cfg.Job:
		c.startRun(cfg, source, reason)
		return noRoll("the job runs once more")
	}
	return c.startRoll(cfg, source, reason)
}

// Resume continues a paused roll.
//
// Callers that waited for the roll before it was paused have got the pause as their result, so
// there is a new one. The failures of the group are forgotten, because the operator who resumes has
// looked at them.
func (c *Controller) Resume(reason string) (*Result, error) {
	r := c.roll
	if r == nil || !r.Paused() {
		return nil, fmt.Errorf("%w: group %q", ErrNotPaused, c.name)
	}
	r.Resume(c.revisions.ByNumber[r.Destination()].Rules(), c.view(time.Now()))
	c.want(r.Wanted())
	c.rollResult = newResult()
	c.forgetFailures()
	c.publishStep("%v resumed: %s", r.Phase(), reason)
	return c.rollResult, nil
}

// Rollback rolls back a roll, whether it is paused or not.
func (c *Controller) Rollback(reason string) (*Result, error) {
	if c.roll == nil {
		return nil, fmt.Errorf("%w: group %q", ErrNotRolling, c.name)
	}
	if c.roll.OnlyForward() {
		return nil, fmt.Errorf("%w: group %q", ErrNoWayBack, c.name)
	}
	return c.rollBack(reason), nil
}

// startRoll begins a roll from the current revision to a new one. If it supersedes another roll,
// the new roll begins from the same revision as that roll, because only that revision is known to
// work.
func (c *Controller) startRoll(cfg spec.Group, source any, reason string) *Result {
	from, to := c.revisions.Current, c.revisions.Unused()
	wanted := c.revisions.Wanted()
	is := &revision.Revision{Config: cfg, Source: source, Shortfall: wanted.Shortfall.Orders(cfg.Desired == wanted.Config.Desired)}
	if c.roll != nil {
		from = c.roll.From
		c.endRoll(&RollError{Group: c.name, Cause: fmt.Errorf("%w: %s", ErrSuperseded, reason)})
	}
	was := c.revisions.ByNumber[from]
	// A rollback does not bring back DependsOn. The order of the groups is that of the
	// configuration that was loaded last: a group that this one depended on may be gone by then, or
	// depend on this one.
	was.LoadedWith, was.Config.DependsOn = was.Config.DependsOn, cfg.DependsOn
	c.revisions.ByNumber = map[int]*revision.Revision{from: was, to: is}
	c.beginRoll(&roll.Roll{From: from, To: to, Reason: reason})
	c.forgetFailures()
	c.host.Publish(events.Event{Kind: events.RollBegun, Message: fmt.Sprintf("from revision %d to %d: %s", from, to, reason)})
	return c.rollResult
}

// beginRoll makes r the roll that is under way, with a result of its own.
//
// From now on the group wants the revision To. The checks of an earlier roll end first:
// they are about the canaries of that one.
func (c *Controller) beginRoll(r *roll.Roll) {
	c.endChecks()
	c.roll, c.rollResult = r, newResult()
	c.revisions.Current = r.To
	r.Begin(c.revisions.ByNumber[r.To].Rules(), c.view(time.Now()))
}

// rollBack begins the rollback that an operator has ordered. A paused roll gets another result,
// because callers that waited for it have got the result of the pause.
func (c *Controller) rollBack(reason string) *Result {
	paused := c.roll.Paused()
	c.roll.OrderRollback(reason)
	if paused {
		c.rollResult = newResult()
		c.forgetFailures()
	}
	c.turnBack(time.Now(), reason, reason)
	return c.rollResult
}

// turnBack begins the rollback of the roll. The status of the roll shows the reason, and the text
// of the event ends with the message.
func (c *Controller) turnBack(now time.Time, reason, message string) {
	r := c.roll
	r.Rollback(c.revisions.ByNumber[r.From].Rules(), c.view(now), reason)
	c.want(r.From)
	c.publishStep("rolling back to revision %d: %s", r.From, message)
}

// want makes a revision of the roll the one that the group wants.
//
// A user would expect a rollback to undo all of the change, so the one part that it does not undo
// is published.
func (c *Controller) want(number int) {
	if c.revisions.Current == number {
		return
	}
	c.revisions.Current = number
	wanted := c.revisions.Wanted()
	if number == c.roll.From && !slices.Equal(wanted.LoadedWith, wanted.Config.DependsOn) {
		c.publishStep("revision %d is restored, except for DependsOn: it was %q and is now %q, as in the configuration that was loaded last",
			number, wanted.LoadedWith, wanted.Config.DependsOn)
	}
}

// publishStep publishes what the roll does.
func (c *Controller) publishStep(format string, args ...any) {
	c.host.Publish(events.Event{Kind: events.RollStep, Roll: c.roll.Phase().String(), Message: fmt.Sprintf(format, args...)})
}

// advanceRoll returns what the roll does next. It returns false if the roll has paused or ended, or
// is being rolled back, so that the caller has to ask again. A roll is rolled back at most once.
func (c *Controller) advanceRoll(now time.Time) (a roll.Action, ok bool) {
	r := c.roll
	step := r.Next(c.revisions.Wanted().Rules(), c.view(now))
	for _, notice := range step.Notices {
		c.publishStep("%s", notice)
	}
	switch step.Change {
	case roll.TurnsBack:
		c.turnBack(now, r.Why(), r.Failure().String())
	case roll.Pauses:
		c.want(r.From)
		err := c.rollError()
		c.host.Publish(events.Event{Kind: events.RollFailed, Roll: "paused", Message: err.Error()})
		c.rollResult.set(err)
	case roll.Ends:
		c.finishRoll()
	default:
		return step.Action, true
	}
	return roll.Action{}, false
}

// rollError returns the last failure of the roll.
func (c *Controller) rollError() *RollError {
	f := c.roll.Failure()
	return &RollError{Group: c.name, Process: f.Instance, Cause: f.Cause}
}

// finishRoll ends a roll that has come to its end.
//
// The phase says how: all replaced, all rolled back, or degraded, which is the end of a roll that
// went on without the processes that it could not replace.
func (c *Controller) finishRoll() {
	switch err := c.rollError(); c.roll.Phase() {
	case roll.RolledBack:
		err.RolledBack = true
		c.endRoll(err)
	case roll.Degraded:
		err.Degraded = true
		c.degraded = degradation{givenUp: c.roll.GivenUp(), missing: max(0, c.desired()-c.instances.live())}
		c.endRoll(err)
	default:
		c.endRoll(nil)
	}
}

// endRoll ends the roll, if there is one. A nil err means that all processes have been replaced.
func (c *Controller) endRoll(err *RollError) {
	r, result := c.roll, c.rollResult
	if r == nil {
		return
	}
	c.endChecks()
	c.roll, c.rollResult = nil, nil
	if r.Paused() {
		return // the callers that waited for the roll got their result when it was paused
	}
	e := events.Event{Kind: events.RollDone, Roll: r.Phase().String()}
	switch {
	case err == nil:
		e.Message = fmt.Sprintf("all processes have revision %d", c.revisions.Current)
		c.host.Publish(e)
		result.set(nil)
		return
	case err.RolledBack && r.Ordered():
		// The event is not RollFailed, because the order to roll back was carried out. Callers that
		// waited for the roll still get err.
		e.Message = fmt.Sprintf("rolled back as requested: all processes have revision %d again", c.revisions.Current)
	case errors.Is(err, ErrSuperseded):
		e.Kind, e.Roll, e.Message = events.RollFailed, "superseded", err.Error()
	default:
		e.Kind, e.Message = events.RollFailed, err.Error()
	}
	c.host.Publish(e)
	result.set(err)
}
