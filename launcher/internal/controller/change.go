package controller

import (
	"fmt"
	"reflect"

	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// Compare reports whether the group has the configuration cfg already, and whether processes of the
// group can keep running with cfg: its present processes or, during a roll, those from before the
// roll. While a roll is paused, keepsProcesses is false, because any change begins another roll.
func (c *Controller) Compare(cfg spec.Group) (same, keepsProcesses bool) {
	now := *c.Config()
	paused := c.roll != nil && c.roll.Paused()
	return reflect.DeepEqual(now, cfg), !paused && (now.SameProcess(cfg) || c.turnsBackTo(cfg))
}

// EffectOnRoll says in at most one line what applying the configuration does to a roll.
func (c *Controller) EffectOnRoll(cfg spec.Group) []string {
	r := c.roll
	_, keepsProcesses := c.Compare(cfg)
	switch {
	case r == nil:
	case r.Paused():
		return []string{fmt.Sprintf("~ %s: the roll to revision %d is paused, and given up for another one (rolls the group)", c.name, r.To)}
	case !keepsProcesses:
		return []string{fmt.Sprintf("~ %s: the roll to revision %d is under way, and superseded by another one (rolls the group)", c.name, r.Destination())}
	case c.turnsBackTo(cfg):
		return []string{fmt.Sprintf("~ %s: the roll to revision %d is under way, and is rolled back to revision %d", c.name, r.To, r.From)}
	}
	return nil
}

// Change changes the wanted configuration to one with which the processes can keep running, see
// Compare. It returns the processes that must get the configuration. If a roll is rolled back for
// the change, Change also returns the result of the roll, otherwise nil.
func (c *Controller) Change(cfg spec.Group, source any, reason string) (affected []Process, result *Result) {
	if c.turnsBackTo(cfg) {
		result = c.rollBack(reason)
	}
	affected = c.apply(cfg)
	c.SetSource(source)
	return affected, result
}

// turnsBackTo reports whether cfg is to be applied by a rollback of the roll that is under way: the
// processes from before the roll can keep running with cfg, and the processes that the roll starts
// cannot.
func (c *Controller) turnsBackTo(cfg spec.Group) bool {
	r := c.roll
	return c.isRolling() && r.Forward() && !r.OnlyForward() && !c.Config().SameProcess(cfg) && c.revisions.ByNumber[r.From].Config.SameProcess(cfg)
}

// apply makes cfg the configuration that the group wants. The running processes, and a roll that is
// under way, go on with cfg. apply returns the processes that must get cfg.
func (c *Controller) apply(cfg spec.Group) (affected []Process) {
	wanted := c.revisions.Wanted()
	if cfg.Desired != wanted.Config.Desired {
		wanted.Shortfall = wanted.Shortfall.Orders(false)
	}
	wanted.Config, c.degraded = cfg, degradation{}
	if c.roll != nil { // a rollback would keep this DependsOn; startRoll says why
		c.revisions.ByNumber[c.roll.From].Config.DependsOn = cfg.DependsOn
	}
	if c.backOff.GivenUp {
		c.forgetFailures()
	}
	for _, i := range c.instances.sorted() {
		if i.Revision() == c.revisions.Current {
			affected = append(affected, i.Process)
		}
	}
	return affected
}
