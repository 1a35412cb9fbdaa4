package launcher

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/guardian"
	"github.com/swansong-go/swansong/launcher/internal/restart"
	"github.com/swansong-go/swansong/launcher/internal/revision"
	"github.com/swansong-go/swansong/launcher/internal/roll"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
	"github.com/swansong-go/swansong/launcher/internal/upgrade"
)

// A groupHandoff is what a group hands over besides its part of the state file. It has secrets.
type groupHandoff struct {
	Epoch              int64 // see controller
	Revisions          revision.Set
	BackOff            restart.BackOff
	LastFailure        string
	Roll               *roll.Roll
	GivenUp, Missing   int
	AwaitsDependencies bool
	Healthy, Finished  bool
	Instances          map[string]instanceHandoff
}

type instanceHandoff struct {
	Config     spec.Group // of the process
	FinishedIn int
}

// handoff returns what another program has to know.
func (m *Manager) handoff(reason, id string) (*upgrade.Handoff, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	h := &upgrade.Handoff{ID: id, Reason: reason, Program: self, Dir: m.host.Dir, Admin: m.cfg.Admin.Address, State: m.record(), Groups: map[string]json.RawMessage{}}
	for _, g := range m.allGroups() {
		if g.scope.Err() != nil {
			return nil, fmt.Errorf("group %q is stopping; wait until it has ended", g.name)
		}
		if h.Groups[g.name], err = json.Marshal(g.handoff(h.State.Groups[g.name].Processes)); err != nil {
			return nil, err
		}
	}
	h.Lines, err = json.Marshal(m.host.RecentLines.All())
	return h, err
}

func (g *group) handoff(processes []*statefile.Process) groupHandoff {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.controller
	h := groupHandoff{Epoch: statefile.ToMillis(c.epoch), Revisions: c.revisions, BackOff: c.backOff, LastFailure: c.lastFailure, Roll: c.roll,
		GivenUp: c.degraded.givenUp, Missing: c.degraded.missing, AwaitsDependencies: c.awaitsDependencies, Healthy: c.healthy, Finished: c.finished,
		Instances: map[string]instanceHandoff{}}
	for _, p := range processes {
		i := c.instances[p.ID]
		if i == nil { // it has not been adopted yet, or has ended meanwhile
			continue
		}
		h.Instances[p.ID] = instanceHandoff{*i.Config(), i.finishedIn}
		i.AddIdentity(p)
	}
	return h
}

// handedGroups returns what the groups of the launcher that was taken over have handed over.
func handedGroups(h *upgrade.Handoff) (map[string]*groupHandoff, error) {
	groups := map[string]*groupHandoff{}
	for name, text := range h.Groups {
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		g := &groupHandoff{}
		if err := d.Decode(g); err != nil {
			return nil, fmt.Errorf("launcher: cannot take over group %q: %w", name, err)
		}
		groups[name] = g
	}
	return groups, nil
}

// resume goes on where another program has stopped. The controller has the configuration with which
// this program was started; if that has changed, applyNext applies it.
func (c *controller) resume(h *groupHandoff, r statefile.Group) {
	configured := c.revisions.Wanted()
	c.epoch, c.revisions, c.unadopted, c.lastNumber = statefile.FromMillis(h.Epoch), h.Revisions, r.Processes, r.LastNumber
	c.backOff, c.lastFailure, c.roll, c.degraded = h.BackOff, h.LastFailure, h.Roll, degradation{h.GivenUp, h.Missing}
	c.awaitsDependencies, c.healthy, c.finished, c.handed = h.AwaitsDependencies, h.Healthy, h.Finished, h.Instances
	if c.roll != nil {
		c.rollResult = newRollResult()
	}
	newest := 0
	for number, r := range c.revisions.ByNumber {
		newest = max(newest, number)
		if sameConfig(r.Config, configured.Config) {
			r.Config, r.Source = configured.Config, configured.Source // JSON does not keep each byte
		}
	}
	// A group need not have the configuration that was loaded last, for instance after a rollback.
	// That one is the newest revision.
	if !sameConfig(*c.config(), configured.Config) && !sameConfig(c.revisions.ByNumber[newest].Config, configured.Config) {
		c.changed = configured
	}
}

func sameConfig(a, b spec.Group) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}

// applyNext applies the configuration with which this program was started, if it differs from that of
// the program that has handed over.
func (g *group) applyNext() {
	const reason = "the launcher was upgraded, with another configuration"
	g.manager.host.Gate.Enter()
	defer g.manager.host.Gate.Leave()
	g.mu.Lock()
	c := g.controller
	next := c.changed
	c.changed = nil
	if next == nil || c.stopping {
		g.mu.Unlock()
		return
	}
	var tell []instanceProcess
	if same, keepsProcesses := (change{g, next.Config}).compare(); !keepsProcesses {
		g.startRoll(next.Config, next.Source, reason) // fails only if the group is stopping
	} else if !same {
		if c.turnsBackTo(next.Config) {
			c.rollBack(reason)
		}
		tell = c.apply(next.Config)
		c.revisions.Wanted().Source = next.Source
	}
	g.publish(Event{Kind: Reloaded, Message: reason})
	g.mu.Unlock()
	for _, p := range tell {
		p.Apply(next.Config)
	}
}

// restoreLines keeps the lines that processes have printed before an upgrade.
func (m *Manager) restoreLines(text json.RawMessage) {
	var lines []Line
	json.Unmarshal(text, &lines) // an error loses only the output of `launcher logs`
	known := map[string]bool{}
	for _, g := range m.taken.State.Groups {
		for _, p := range g.Processes {
			known[p.ID] = true
		}
	}
	for _, l := range lines {
		if known[l.Process] {
			m.host.RecentLines.Add(l)
		}
	}
}

// takeOver ends what the program that has handed over leaves behind: its guardian, hooks, and
// groups that are not configured any more.
func (m *Manager) takeOver(taken *upgrade.Taken) {
	taken.OpenOutputs()
	guardian.DismissPrevious(taken.Guardian())
	m.endPreviousGuardians()
	var known []proc.Adoptable
	for _, g := range taken.State.Groups {
		for _, p := range g.Processes {
			known = append(known, p.Adoptable)
		}
	}
	m.upgraded = &upgraded{taken.ID, taken.Failed, len(known)}
	known = append(known, m.host.Guardian.Adoptable()...)
	m.host.Containment.EndStrays(taken.Children(), known, time.Now().Add(spec.ReapTimeout))
}

// announce publishes that this program has taken over, and stops the groups that are not configured
// any more.
func (m *Manager) announce(taken *upgrade.Taken) {
	n := len(m.allProcesses())
	if taken.Failed != "" {
		m.publish(Event{Kind: Alarm, Message: "not upgraded: the other program has taken over, and has failed: " + taken.Failed + "; this one goes on"})
	} else {
		m.publish(Event{Kind: Upgraded, Message: fmt.Sprintf("this program has taken over from %s, with %d processes: %s", taken.Program, n, taken.Reason)})
	}
	plan := &reloadPlan{reloader: m.reloader}
	for _, g := range m.allGroups() {
		if !m.cfg.has(g.name) {
			g.removed.Store(true)
			plan.removed = append(plan.removed, g)
		}
	}
	plan.remove()
}

// addGroups adds the groups, with what an earlier launcher has recorded or handed over of them.
func (m *Manager) addGroups(groups []spec.Group, before statefile.State, handed map[string]*groupHandoff) {
	for _, cfg := range groups {
		added := newGroup(m, cfg, m.cfg.Source)
		if h := handed[cfg.Name]; h != nil {
			added.controller.resume(h, before.Groups[cfg.Name])
			if !m.cfg.has(cfg.Name) { // announce stops it
				added.controller.changed = nil
			}
		} else {
			added.controller.restore(before.Groups[cfg.Name])
		}
		m.addGroup(added)
	}
}

// orphansOf returns the groups that are not configured any more, with the configuration that they
// have handed over, so that their processes are stopped by it.
func orphansOf(before statefile.State, groups []spec.Group, handed map[string]*groupHandoff) []spec.Group {
	orphans := before.Orphans(groups)
	for i, o := range orphans {
		if h := handed[o.Name]; h != nil {
			o = h.Revisions.Wanted().Config
			o.DependsOn, o.Listen = nil, nil
			orphans[i] = o
		}
	}
	return orphans
}
