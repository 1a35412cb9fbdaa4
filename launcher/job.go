package launcher

import (
	"fmt"

	"github.com/swansong-go/swansong/launcher/internal/revision"
	"github.com/swansong-go/swansong/launcher/internal/roll"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// startRun has the processes of a job run once more, and stops those that still run. What it
// returns is complete: the caller does not wait. g.mu is held.
func (g *group) startRun(cfg spec.Group, source any, reason string) *rollResult {
	old := g.controller.startRun(cfg, source, reason)
	g.manager.host.StateFile.Changed()
	for _, i := range old {
		g.stop(roll.Action{ID: i.ID(), Why: reason})
	}
	r := newRollResult()
	r.set(nil)
	return r
}

// startRun makes a job run once more, with a configuration that is a new revision: what has finished
// counts no more. It returns the processes that are to be stopped, because they still run. There is
// no roll, because jobs need not be replaced one by one: no client relies on their being ready.
func (c *controller) startRun(cfg spec.Group, source any, reason string) (old []*instance) {
	was := c.revisions.Wanted()
	number, is := c.revisions.Unused(), &revision.Revision{Config: cfg, Source: source, Shortfall: was.Shortfall.Orders(cfg.Desired == was.Config.Desired)}
	c.endRoll(&RollError{Group: c.name, Cause: fmt.Errorf("%w: %s", ErrSuperseded, reason)}) // a reload has made a service a job
	c.revisions = revision.Set{Current: number, ByNumber: map[int]*revision.Revision{number: is}}
	c.forgetFailures()
	for _, i := range c.instances.sorted() {
		if !i.accounted {
			old = append(old, i)
		}
	}
	return old
}
