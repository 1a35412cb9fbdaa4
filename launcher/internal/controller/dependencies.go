package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/swansong-go/swansong/internal/worktext"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// AwaitsDependencies reports whether the group still waits for the groups that it depends on. While
// it waits, it starts no process.
func (c *Controller) AwaitsDependencies() bool { return c.awaitsDependencies }

// describeWait returns the message of a roll for a group of which no process runs yet: nothing is
// replaced. The message names the groups that the group waits for.
func (c *Controller) describeWait() string {
	const text = "nothing is replaced, because no process of the group runs yet"
	if len(c.waitsFor) == 0 { // the group has not yet checked the groups that it depends on
		return text
	}
	advice := ""
	if !c.Config().Job {
		advice = "; launcher start " + c.name + " --wait waits until it is healthy"
	}
	return text + ": it waits for " + strings.Join(c.waitsFor, ", ") + advice
}

// WaitFor records the names of the groups that this group waits for, so that [Health] can name
// them. It returns at once.
func (c *Controller) WaitFor(names []string) { c.waitsFor = names }

// BeginIfDependingOn ends the wait for dependencies and returns true, if the dependencies of the
// group are still those of cfg. Otherwise it returns false, and the group goes on waiting.
func (c *Controller) BeginIfDependingOn(cfg spec.Group) bool {
	if now := c.Config(); !slices.Equal(now.DependsOn, cfg.DependsOn) || !maps.Equal(now.Conditions, cfg.Conditions) {
		return false
	}
	c.awaitsDependencies = false
	// The group has waited for its dependencies, so the time in which the roll must make progress
	// begins now.
	if c.roll != nil {
		c.roll.DelayProgress(time.Since(c.epoch))
	}
	return true
}

// IsStarted reports whether the processes of the group have been started, or have finished.
func (c *Controller) IsStarted() bool {
	started := 0
	for _, i := range c.instances {
		if !i.accounted && i.Status().PID != 0 {
			started++
		}
	}
	return !c.awaitsDependencies && started >= c.desired()
}

// IsFinished reports whether the group has no processes, and starts none until an operator gives an
// order. A group that an operator has stopped is not finished: the operator is expected to start
// it.
func (c *Controller) IsFinished() bool {
	return !c.awaitsDependencies && !c.revisions.Wanted().Shortfall.Stopped && c.roll == nil && len(c.instances) == 0 && (c.backOff.GivenUp || c.desired() == 0)
}

// Failure returns the error of a finished group, nil if none of its processes has failed for good.
func (c *Controller) Failure() error {
	if err := c.GivenUp(); err != nil {
		return err
	}
	if short := c.revisions.Wanted().Shortfall; short.Failed > 0 {
		return fmt.Errorf("launcher: group %q: %d of %s failed", c.name, short.Failed, worktext.Pluralize(short.Finished, "process"))
	}
	return nil
}
