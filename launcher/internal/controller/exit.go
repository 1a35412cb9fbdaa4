package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/events"
	"github.com/swansong-go/swansong/launcher/internal/lifecycle"
	"github.com/swansong-go/swansong/launcher/internal/process"
	"github.com/swansong-go/swansong/launcher/internal/restart"
	"github.com/swansong-go/swansong/launcher/internal/roll"
)

// OnChange handles a change of the status of a process.
//
// The caller has locked the Controller, which stays locked during the calls of the Host. If the
// process is not among the instances, it has been removed already, and nothing is left to decide.
func (c *Controller) OnChange(p Process, st process.Status) {
	i := c.instances.find(p)
	if i == nil {
		return
	}
	// An unhealthy process is replaced before it has ended, because a process that fails may take
	// long to drain.
	if st.State == lifecycle.Unhealthy || st.State.Ended() {
		c.onExit(i, st)
	}
	if st.State.Ended() {
		c.remove(i, st)
	}
}

// remove moves a process from those that exist to those that have ended lately.
func (c *Controller) remove(i *instance, st process.Status) {
	delete(c.instances, i.ID())
	c.host.Record()
	c.ended = append(c.ended, st)
	if len(c.ended) > KeptStatuses {
		c.host.Forget(c.ended[0].ID)
		c.ended = slices.Delete(c.ended, 0, 1)
	}
}

// onExit handles, once per process, an exit that the group has not caused.
//
// For an unhealthy process, onExit is called before the process has ended, and again when it has.
// The field accounted makes sure that the process is counted and replaced once.
//
// What follows depends on the restart policy, on the outcome and on a roll that is under way;
// package restart has the table. If onExit does nothing more, the group or its roll starts another
// process at once, if it needs one. Otherwise onExit delays the next start without counting a
// failure, counts the process as finished, gives the group up, or counts a failure and delays the
// next start by the back-off.
func (c *Controller) onExit(i *instance, st process.Status) {
	if i.accounted || c.stopping {
		return
	}
	i.accounted = true
	e := newExit(i, st, c.roll)
	if e.FailsRoll() {
		c.roll.CountFailure(i.Revision(), roll.Failure{Instance: i.ID(), Cause: errors.New(failureOf(st))})
	}
	switch e.FollowUp() {
	case restart.Finish:
		c.finish(i, e.Failed)
	case restart.GiveUp:
		c.backOff.GiveUp(time.Now())
		c.publishGivenUp(st)
	case restart.Later:
		c.restartLater(st)
	}
}

// newExit returns what package restart has to know about an exit. Without a roll, r is nil.
//
// A paused roll counts as none: a process that ends meanwhile is replaced by the ordinary rules, as
// if no roll had begun.
func newExit(i *instance, st process.Status, r *roll.Roll) restart.Exit {
	e := restart.Exit{
		Policy: i.Config().Restart.Policy, Unhealthy: st.State == lifecycle.Unhealthy, Failed: st.State == lifecycle.Unhealthy || st.Outcome != lifecycle.Clean,
		Stopped: !st.Asked.IsZero(), WasReady: !st.ReadyAt.IsZero(), OutcomeUnknown: st.Outcome == lifecycle.Unknown,
	}
	if r != nil && !r.Paused() {
		e.Rolling, e.Target, e.Pending = true, r.IsTarget(i.Revision()), r.HasYetToReplace(i.Revision())
	}
	return e
}

// restartLater counts the failure of a process, and has the next one started after a pause or gives
// the group up.
func (c *Controller) restartLater(st process.Status) {
	pause, givesUp := c.backOff.Fail(c.Config().Restart, st.ReadyAt, time.Now())
	if givesUp {
		c.publishGivenUp(st)
		return
	}
	c.host.Publish(events.Event{Kind: events.Restart, Process: st.ID,
		Message: fmt.Sprintf("failure %d in a row; the next process is started in %v", c.backOff.Failures, pause)})
}

// publishGivenUp publishes that the group was given up after the failure of a process.
//
// The text of the failure is kept: GivenUp returns it later, when the status of this process may
// have been removed from those that have ended.
func (c *Controller) publishGivenUp(st process.Status) {
	c.lastFailure = st.ID + ": " + failureOf(st)
	c.host.Publish(events.Event{Kind: events.Alarm, Message: c.givenUpError().Rule()})
}

// givenUpError returns the error of a group that was given up.
func (c *Controller) givenUpError() *GivenUpError {
	return &GivenUpError{c.name, c.backOff.Failures, c.lastFailure}
}

// GivenUp returns a [*GivenUpError] if the group was given up.
func (c *Controller) GivenUp() error {
	if c.backOff.GivenUp {
		return c.givenUpError()
	}
	return nil
}

// A GivenUpError says that the processes of a group have failed too often to be started again.
type GivenUpError struct {
	Group    string
	Failures int    // number of failures in a row
	Last     string // the id of the process that failed last, and its failure
}

// Rule returns the text of the error without the group: what has happened and what to do.
func (e *GivenUpError) Rule() string {
	return fmt.Sprintf("given up after %s; the last: %s; restart the group when that is fixed", inARow(e.Failures), e.Last)
}

// inARow returns the number of failures in a row in words, for GivenUpError.
func inARow(failures int) string {
	if failures == 1 {
		return "a failure"
	}
	return fmt.Sprintf("%d failures in a row", failures)
}

func (e *GivenUpError) Error() string {
	return fmt.Sprintf("launcher: group %q: %s", e.Group, e.Rule())
}

// finish counts a process as finished in the wanted revision.
//
// A process that has finished is not run again while the group wants this revision. The count
// belongs to the revision: after a roll of a job to another one, each of its processes runs once
// more.
func (c *Controller) finish(i *instance, failed bool) {
	i.finishedIn = c.revisions.Current
	c.revisions.Wanted().Finish(failed)
}

// failureOf says what is wrong with the process.
func failureOf(s process.Status) string {
	if s.State == lifecycle.Unhealthy {
		return s.Reason
	}
	return strings.TrimSuffix(fmt.Sprintf("%v: %s", s.Outcome, s.Message), ": ")
}
