package controller

import (
	"context"
	"errors"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/canary"
	"github.com/swansong-go/swansong/launcher/internal/roll"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// canaryChecks are the checks of the canaries of a roll, one after the other, from when all
// canaries are available until the roll goes on or is rolled back.
type canaryChecks struct {
	cancel   context.CancelFunc // ends the check that runs
	running  bool
	began    time.Time // when the last check began
	next     time.Time // when the next check is due; if the wait for the canaries ends earlier, that check is brought forward
	noAnswer string    // why the last check gave no answer; empty if it gave one
}

// checkCanaries starts a check of the canaries if one is due. Otherwise it passes the time of the
// next check to the function again, which arranges for a call of checkCanaries at that time.
//
// It is called whenever the group decides what to do next. The first check is due an interval after
// the canaries are available. Near the end of the wait a check is brought forward: the roll goes on
// only after a check that began when the wait was over.
func (c *Controller) checkCanaries(now time.Time, again func(time.Time)) {
	cfg := c.Config().Roll.Check
	var until time.Duration
	waits := false
	if c.isRolling() && cfg.IsSet() {
		until, waits = c.roll.CanaryUntil(c.revisions.Wanted().Rules(), c.view(now))
	}
	if !waits { // there is nothing to check: the roll has ended, or a canary has failed
		c.endChecks()
		return
	}
	if c.checks == nil {
		c.checks = &canaryChecks{cancel: func() {}, next: now.Add(cfg.Interval)}
	}
	if c.checks.running {
		return
	}
	due := c.checks.next
	if end := c.epoch.Add(until); end.Before(due) && c.checks.began.Before(end) {
		due = end // the other processes are replaced only after a check that begins when the wait is over
	}
	if now.Before(due) {
		again(due)
		return
	}
	c.startCheck(cfg, now)
}

// startCheck starts a check. When the check has ended, the Host locks the Controller and calls the
// function that startCheck has passed to it. That function ignores the result of the check if
// c.checks has changed since then: the roll has gone on, was rolled back, or was superseded.
func (c *Controller) startCheck(cfg spec.CanaryCheck, now time.Time) {
	k := canary.Check{CanaryCheck: cfg, Group: c.name, Revision: c.roll.To}
	for _, i := range c.instances.sorted() {
		if i.Revision() == c.roll.To && !i.accounted {
			k.Canaries = append(k.Canaries, i.ID())
		}
	}
	checks := c.checks
	checks.running, checks.began = true, now
	checks.cancel = c.host.Check(k, func(failed string, err error) {
		if c.checks == checks {
			checks.running, checks.next = false, time.Now().Add(cfg.Interval)
			c.onCheck(failed, err)
		}
	})
}

// endChecks ends the check that runs, if there is one.
func (c *Controller) endChecks() {
	if c.checks != nil {
		c.checks.cancel()
		c.checks = nil
	}
}

// onCheck handles the result of a check. An error means that the check gave no answer.
//
// A check that gives no answer has neither succeeded nor failed: it is repeated, and the wait for
// the canaries goes on. The reason is published when it differs from that of the check before.
func (c *Controller) onCheck(failed string, err error) {
	k := c.checks
	was := k.noAnswer
	k.noAnswer = ""
	switch {
	case err != nil:
		if k.noAnswer = err.Error(); k.noAnswer != was {
			c.publishStep("the check of the canaries gave no answer, and is repeated: %s", k.noAnswer)
		}
	case failed != "":
		c.roll.RejectCanaries(roll.Failure{Cause: errors.New("the canaries have failed their check: " + failed)})
	default:
		c.roll.PassCanaries(k.began.Sub(c.epoch))
	}
}
