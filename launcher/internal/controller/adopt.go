package controller

import (
	"fmt"
	"slices"

	"github.com/swansong-go/swansong/launcher/internal/events"
	"github.com/swansong-go/swansong/launcher/internal/revision"
	"github.com/swansong-go/swansong/launcher/internal/roll"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

// Restore restores what an earlier launcher has recorded of the group.
//
// It is called once, before any process is adopted or started. What is restored depends on what has
// changed in the configuration file meanwhile. An order to stop the group always holds. The number
// of processes that an operator has set holds until the configuration file has another number.
// Finished processes count only under the same configuration, as recognized by its digest.
//
// The revisions keep their numbers, so that processes whose configuration is unchanged are not
// replaced. If neither the group nor a recorded process had the present configuration, that becomes
// a new revision, with a higher number than all others.
func (c *Controller) Restore(r statefile.Group) {
	if r.Revision == 0 {
		return
	}
	c.lastNumber, c.unadopted = r.LastNumber, r.Processes
	wanted := c.revisions.Wanted()
	d := statefile.Digest(wanted.Config)
	wanted.Shortfall.Stopped = r.Stopped
	// If the configured number of processes has not changed since the state file was written, the
	// numbers in the state file (of finished, failed and scaled-down processes) still hold.
	if r.Config.Desired == wanted.Config.Desired {
		short := &wanted.Shortfall
		if r.Config.OnLauncherDeath == spec.Keep && r.Digest == d { // processes that finished under the same configuration are not run again
			short.Finished, short.Failed = r.Finished, r.FinishedFailed
		}
		// If the state file has neither running nor finished processes of the group, the group
		// gets the number in its configuration.
		if len(r.Processes) > 0 || short.Finished > 0 {
			short.ScaledDown = r.ScaledDown
		}
	}
	highest := r.Revision
	for _, p := range r.Processes {
		highest = max(highest, p.Revision)
	}
	number := highest + 1
	for _, p := range r.Processes {
		if p.Digest == d {
			number = p.Revision
		}
	}
	if r.Digest == d {
		number = r.Revision
	}
	c.revisions = revision.Set{Current: number, ByNumber: map[int]*revision.Revision{number: wanted}}
	for _, p := range r.Processes {
		if p.Revision != number {
			// Add the revision of the process to the set, so that no new revision gets its number.
			c.revisions.ByNumber[p.Revision] = &revision.Revision{Config: p.Config}
		}
	}
}

// Adopt adopts the processes of the group that have outlived an earlier launcher.
//
// If a process was started with another configuration than the present one, or was found by
// launcher recover, the state file has its configuration. The process keeps that until it is
// replaced. But the state file has no pre-stop hooks, so the process gets the hooks and the
// environment of the present configuration. A configuration that an upgrade has handed over is
// complete, so the process keeps all of it.
func (c *Controller) Adopt() {
	for _, found := range c.unadopted {
		cfg := *c.Config()
		if found.Digest != statefile.Digest(cfg) {
			present := cfg
			cfg = found.Config
			// The process runs already, so the present environment is only for its hooks.
			cfg.PreStop, cfg.Env, cfg.ClearEnv = present.PreStop, present.Env, present.ClearEnv
		}
		handed, known := c.handed[found.ID]
		if known {
			cfg = handed.Config
		}
		p, ok := c.host.Adopt(found, cfg)
		if !ok {
			found.CloseOutputs() // close only this launcher's ends of the output, because the next launcher adopts the process
			continue
		}
		i := c.instances.add(p)
		i.accounted, i.noReplacement, i.finishedIn = found.StopAt != 0, found.NotReplaced, handed.FinishedIn
		c.unadopted = slices.DeleteFunc(slices.Clone(c.unadopted), func(other *statefile.Process) bool { return other == found })
	}
}

// ReplaceAdopted begins a roll that replaces those adopted processes that were started with another
// configuration than the present one. The roll cannot be rolled back, because the state file does
// not have the whole configuration that those processes were started with. The processes of a job
// are not replaced: they run to their end with the configuration that they have.
func (c *Controller) ReplaceAdopted() {
	// A roll that was ordered before is under way, and replaces the adopted processes, too.
	if c.roll != nil {
		return
	}
	old := func(i *instance) bool { return i.Revision() != c.revisions.Current && !i.accounted }
	// An adopted process may have ended by now, and its failure may have made the launcher give up
	// the group. Then the group starts nothing until an operator orders it.
	if c.stopping || c.Config().Job || c.backOff.GivenUp || c.desired() == 0 || !slices.ContainsFunc(c.instances.sorted(), old) {
		return
	}
	reason := "the launcher was started with another configuration"
	if slices.ContainsFunc(c.instances.sorted(), func(i *instance) bool { return old(i) && i.Record().Digest == "" }) {
		reason = "launcher recover has found processes, and it is not known how they were started"
	}
	c.beginRoll(&roll.Roll{From: c.revisions.Current, To: c.revisions.Current, Reason: reason})
	c.host.Publish(events.Event{Kind: events.RollBegun, Message: fmt.Sprintf("to revision %d: %s", c.roll.To, c.roll.Reason)})
}

// State returns the part of the state file about the group, which listens on the given sockets.
//
// The caller has locked the Controller.
func (c *Controller) State(sockets []statefile.Socket) statefile.Group {
	cfg, short := *c.Config(), c.revisions.Wanted().Shortfall
	r := statefile.Group{Config: statefile.WithoutSecrets(cfg), Revision: c.revisions.Current, Digest: statefile.Digest(cfg), LastNumber: c.lastNumber, ScaledDown: short.ScaledDown, Stopped: short.Stopped,
		Finished: short.Finished, FinishedFailed: short.Failed, Sockets: sockets, Processes: slices.Clone(c.unadopted)}
	for _, i := range c.instances.sorted() {
		p := i.Record()
		p.NotReplaced = i.noReplacement
		// A process that is unhealthy, and is not to be replaced, counts as finished even before it
		// is stopped. It is not counted in the state file: the next launcher adopts the process,
		// and then counts it.
		if p.StopAt == 0 && i.finishedIn == c.revisions.Current {
			r.Finished, r.FinishedFailed = max(0, r.Finished-1), max(0, r.FinishedFailed-1)
		}
		r.Processes = append(r.Processes, p)
	}
	return r
}
