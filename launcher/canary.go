package launcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/canary"
	"github.com/swansong-go/swansong/launcher/internal/roll"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// canaryChecks are the checks of the canaries of a roll, one after the other, from when all
// canaries are available until the roll goes on or turns back. The lock of the group guards the
// fields.
type canaryChecks struct {
	cancel   context.CancelFunc // ends the check that runs
	running  bool
	began    time.Time // when the last check began
	next     time.Time // when the next check is due, unless the wait for the canaries ends before
	noAnswer string    // why the last check gave no answer; empty if it gave one
}

// checkCanaries starts a check of the canaries when one is due. It calls again with the time of the
// next one. g.mu is held.
func (g *group) checkCanaries(now time.Time, again func(time.Time)) {
	c := g.controller
	cfg := c.config().Roll.Check
	var until time.Duration
	waits := false
	if c.isRolling() && cfg.IsSet() {
		until, waits = c.roll.CanaryUntil(c.revisions.Wanted().Rules(), c.view(now))
	}
	if !waits { // the roll has ended, or a canary has failed
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
		due = end // only a check that begins after the wait lets the others follow
	}
	if now.Before(due) {
		again(due)
		return
	}
	g.startCheck(cfg, now)
}

// endChecks ends the check that runs, if there is one.
func (c *controller) endChecks() {
	if c.checks != nil {
		c.checks.cancel()
		c.checks = nil
	}
}

// startCheck runs a check on a goroutine of its own. Its result counts unless the checks have ended
// meanwhile. g.mu is held.
func (g *group) startCheck(cfg spec.CanaryCheck, now time.Time) {
	c, checks := g.controller, g.controller.checks
	k := canary.Check{CanaryCheck: cfg, Group: g.name, Revision: c.roll.To, In: g.manager.host.Containment}
	for _, i := range c.instances.sorted() {
		if i.Revision() == c.roll.To && !i.accounted {
			k.Canaries = append(k.Canaries, i.ID())
		}
	}
	ended, cancel := context.WithCancel(context.Background())
	checks.cancel, checks.running, checks.began = cancel, true, now
	started := g.scope.Go(func(ctx context.Context) {
		ctx, stop := context.WithTimeoutCause(ctx, cfg.Timeout, fmt.Errorf("it took longer than %v", cfg.Timeout))
		defer stop()
		defer context.AfterFunc(ended, stop)()
		failed, err := k.Run(ctx)
		cancel()
		g.mu.Lock()
		defer g.mu.Unlock()
		if c.checks == checks {
			checks.running, checks.next = false, time.Now().Add(cfg.Interval)
			c.onCheck(failed, err)
			g.wake()
		}
	})
	if !started {
		cancel()
	}
}

// onCheck handles the result of a check. An error means that the check gave no answer.
func (c *controller) onCheck(failed string, err error) {
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
