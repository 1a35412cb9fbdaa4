package launcher

import (
	"fmt"
	"slices"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/process"
	"github.com/swansong-go/swansong/launcher/internal/revision"
	"github.com/swansong-go/swansong/launcher/internal/roll"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

// restore restores what an earlier launcher has recorded of the group.
func (c *controller) restore(r statefile.Group) {
	if r.Revision == 0 {
		return
	}
	c.lastNumber, c.unadopted = r.LastNumber, r.Processes
	wanted := c.revisions.Wanted()
	d := statefile.Digest(wanted.Config)
	wanted.Shortfall.Stopped = r.Stopped
	if r.Config.Desired == wanted.Config.Desired { // if the number in the configuration is unchanged, the numbers in the state file still hold
		short := &wanted.Shortfall
		if r.Config.OnLauncherDeath == Keep && r.Digest == d { // processes that finished under the same configuration are not run again
			short.Finished, short.Failed = r.Finished, r.FinishedFailed
		}
		if len(r.Processes) > 0 || short.Finished > 0 { // without processes, kept or finished, the group begins anew
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
			// The revision is listed, so that its number is not used again.
			c.revisions.ByNumber[p.Revision] = &revision.Revision{Config: p.Config}
		}
	}
}

// adopt adopts the processes that an earlier launcher has kept.
func (g *group) adopt() {
	g.mu.Lock()
	defer g.mu.Unlock()
	c, now := g.controller, time.Now()
	for _, found := range c.unadopted {
		cfg := *c.config()
		if found.Digest != statefile.Digest(cfg) {
			hooks := cfg.PreStop
			cfg = found.Config
			cfg.PreStop = hooks
		}
		handed, known := c.handed[found.ID]
		if known {
			cfg = handed.Config
		}
		p := process.New(g.shared, found.ID, found.Revision, cfg)
		p.Restore(found, now)
		p.LearnSecrets() // before announce says why an upgrade has failed
		if !g.launch(p) {
			found.CloseOutputs() // close only this launcher's ends of the output, because the next launcher adopts the process
			continue
		}
		i := c.instances[p.ID()]
		i.accounted, i.noReplacement, i.finishedIn = found.StopAt != 0, found.NotReplaced, handed.FinishedIn
		c.unadopted = slices.DeleteFunc(slices.Clone(c.unadopted), func(other *statefile.Process) bool { return other == found })
	}
}

// replaceAdopted begins to replace the adopted processes that have another configuration. That roll
// cannot turn back, because the state file does not have what they were started with. Jobs run to
// their end with the configuration that they have.
func (g *group) replaceAdopted() {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.controller
	if c.roll != nil { // an order for a roll came first, and that roll replaces the adopted processes, too
		return
	}
	old := func(i *instance) bool { return i.Revision() != c.revisions.Current && !i.accounted }
	// A group that was given up, because an adopted process has ended by now, starts nothing until an
	// operator orders it.
	if c.stopping || c.config().Job || c.backOff.GivenUp || c.desired() == 0 || !slices.ContainsFunc(c.instances.sorted(), old) {
		return
	}
	c.beginRoll(&roll.Roll{From: c.revisions.Current, To: c.revisions.Current, Reason: "the launcher was started with another configuration"})
	c.publish(Event{Kind: RollBegun, Message: fmt.Sprintf("to revision %d: %s", c.roll.To, c.roll.Reason)})
}

// awaitAdopted waits until the processes that were adopted as ready count as available. Otherwise
// they could be taken for processes that are not ready, and too many others be stopped.
func (g *group) awaitAdopted() {
	for _, p := range g.processes() {
		p.AwaitRouted()
	}
}

// record returns what the state file has about the group.
func (g *group) record(sockets []statefile.Socket) statefile.Group {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.controller
	cfg, short := *c.config(), c.revisions.Wanted().Shortfall
	r := statefile.Group{Config: statefile.WithoutSecrets(cfg), Revision: c.revisions.Current, Digest: statefile.Digest(cfg), LastNumber: c.lastNumber, ScaledDown: short.ScaledDown, Stopped: short.Stopped,
		Finished: short.Finished, FinishedFailed: short.Failed, Sockets: sockets, Processes: slices.Clone(c.unadopted)}
	for _, i := range c.instances.sorted() {
		p := i.Record()
		p.NotReplaced = i.noReplacement
		// The process is unhealthy and not stopped yet: the next launcher counts it.
		if p.StopAt == 0 && i.finishedIn == c.revisions.Current {
			r.Finished, r.FinishedFailed = max(0, r.Finished-1), max(0, r.FinishedFailed-1)
		}
		r.Processes = append(r.Processes, p)
	}
	return r
}

// record returns the state file.
func (m *Manager) record() statefile.State {
	m.mu.Lock()
	guardians := slices.Concat(m.previousGuardians, m.host.Guardian.Adoptable())
	m.mu.Unlock()
	r := statefile.State{Boot: proc.Boot(), Containment: m.host.Containment, Guardians: guardians, Groups: map[string]statefile.Group{}}
	for _, g := range m.allGroups() {
		r.Groups[g.name] = g.record(m.listenersOf(g.name).Sockets())
	}
	return r
}
