package launcher

import (
	"errors"
	"fmt"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/restart"
	"github.com/swansong-go/swansong/launcher/internal/roll"
)

// onExit handles, once per process, an exit that the group has not caused.
func (c *controller) onExit(i *instance, st Status) {
	if i.accounted || c.stopping {
		return
	}
	i.accounted = true
	e := newExit(i, st, c.roll)
	if e.FailsRoll() {
		c.roll.CountFailure(i.Revision(), roll.Failure{Instance: i.ID(), Cause: errors.New(failureOf(st))})
	}
	switch e.FollowUp() {
	case restart.Postpone:
		c.postpone(st)
	case restart.Finish:
		c.finish(i, e.Failed)
	case restart.GiveUp:
		c.backOff.GiveUp(time.Now())
		c.publishGivenUp(st)
	case restart.Later:
		c.restartLater(st)
	}
}

func newExit(i *instance, st Status, r *roll.Roll) restart.Exit {
	e := restart.Exit{
		Policy: i.Config().Restart.Policy, Unhealthy: st.State == Unhealthy, Failed: st.State == Unhealthy || st.Outcome != Clean,
		Stopped: !st.Asked.IsZero(), WasReady: !st.ReadyAt.IsZero(), OutcomeUnknown: st.Outcome == Unknown, NotStarted: i.IsUnprepared(),
	}
	if r != nil && !r.Paused() {
		e.Rolling, e.Target, e.Pending = true, r.IsTarget(i.Revision()), r.HasYetToReplace(i.Revision())
	}
	return e
}

// postpone has the next process started after a pause, because the launcher could not start one.
func (c *controller) postpone(st Status) {
	pause := c.backOff.Postpone(c.config().Restart, time.Now())
	c.publishRestart(st, "could not be started, which does not count as a failure", pause)
}

// restartLater counts the failure of a process, and has the next one started after a pause or gives
// the group up.
func (c *controller) restartLater(st Status) {
	pause, givesUp := c.backOff.Fail(c.config().Restart, st.ReadyAt, time.Now())
	if givesUp {
		c.publishGivenUp(st)
		return
	}
	c.publishRestart(st, fmt.Sprintf("failure %d in a row", c.backOff.Failures), pause)
}

func (c *controller) publishRestart(st Status, why string, pause time.Duration) {
	c.publish(Event{Kind: Restart, Process: st.ID, Message: fmt.Sprintf("%s; the next process is started in %v", why, pause)})
}

// publishGivenUp publishes that the group was given up after the failure of a process.
func (c *controller) publishGivenUp(st Status) {
	c.lastFailure = st.ID + ": " + failureOf(st)
	c.publish(Event{Kind: Alarm, Message: c.givenUpError().Rule()})
}

// givenUpError returns the error of a group that was given up.
func (c *controller) givenUpError() *GivenUpError {
	return &GivenUpError{c.name, c.backOff.Failures, c.lastFailure}
}

// A GivenUpError says that the processes of a group have failed too often to be started again.
type GivenUpError struct {
	Group    string
	Failures int    // number of failures in a row
	Last     string // the id of the process that failed last, and its failure
}

// Rule says what has happened and what to do.
func (e *GivenUpError) Rule() string {
	return fmt.Sprintf("given up after %s; the last: %s; restart the group when that is fixed", inARow(e.Failures), e.Last)
}

func inARow(failures int) string {
	if failures == 1 {
		return "a failure"
	}
	return fmt.Sprintf("%d failures in a row", failures)
}

func (e *GivenUpError) Error() string {
	return fmt.Sprintf("launcher: group %q: %s", e.Group, e.Rule())
}
