package launcher

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/internal/worktext"
	"github.com/swansong-go/swansong/launcher/internal/controller"
	"github.com/swansong-go/swansong/launcher/internal/guardian"
	"github.com/swansong-go/swansong/launcher/internal/listeners"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
	"github.com/swansong-go/swansong/launcher/internal/upgrade"
)

// succeed locks the directory, and ends what an earlier launcher has left there, except for what is
// to be kept. If this program takes over from another one, succeed takes the lock and the state
// from it instead.
func (s *start) succeed(groups []spec.Group) (err error) {
	if s.taken != nil {
		s.lock, s.before = s.taken.Lock(), s.taken.State
		s.handed, err = handedGroups(s.taken.Handoff)
		s.restoreLines()
		return err
	}
	if s.lock, err = lockDirectory(s.host.Dir); err != nil {
		return err
	}
	keeps := slices.ContainsFunc(groups, func(g spec.Group) bool { return g.OnLauncherDeath == Keep })
	if s.before, s.damaged, err = guardian.EndPrevious(s.host.Dir, keeps); s.damaged != "" {
		// Which socket files the earlier launcher has left was only in the damaged file. So the
		// file of each configured socket is removed if no process listens on it.
		listeners.RemoveAllStale(groups)
	}
	return err
}

// endPreviousGuardians ends the guardians (see Config.Guardian) of earlier launchers. It publishes
// what they have reported, and that the state file was damaged. The guardians stay in the state
// file until they have ended, so that the next launcher ends them if this one is killed.
func (s *start) endPreviousGuardians() {
	for _, k := range s.before.Guardians {
		guardian.End(k)
	}
	if s.damaged != "" {
		s.publish(Event{Kind: Alarm, Message: "the state file of an earlier launcher was damaged, and is now " + s.damaged + "; no process that was to be kept is found"})
	}
	for _, complaint := range guardian.Complaints(s.host.Dir) {
		s.publish(Event{Kind: Alarm, Message: "while no launcher was running: " + complaint})
	}
	s.recorder.forgetGuardians()
}

// handedGroups returns, by group, what the launcher that was taken over has handed over in h.
func handedGroups(h *upgrade.Handoff) (map[string]*controller.Handoff, error) {
	groups := map[string]*controller.Handoff{}
	for name, text := range h.Groups {
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		g := &controller.Handoff{}
		if err := d.Decode(g); err != nil {
			return nil, fmt.Errorf("launcher: cannot take over group %q: %w", name, err)
		}
		groups[name] = g
	}
	return groups, nil
}

// restoreLines keeps the lines that processes have printed before an upgrade.
func (s *start) restoreLines() {
	var lines []Line
	json.Unmarshal(s.taken.Lines, &lines) // ignore an error: it loses only lines that `launcher logs` would print
	known := map[string]bool{}
	for _, p := range s.taken.State.Processes() {
		known[p.ID] = true
	}
	for _, l := range lines {
		if known[l.Process] {
			s.host.RecentLines.Add(l)
		}
	}
}

// takeOver ends what the program that has handed over leaves behind: its guardian, and its hooks
// and other children that are no processes of a group.
func (s *start) takeOver() {
	s.taken.OpenOutputs()
	guardian.DismissPrevious(s.taken.Guardian())
	s.endPreviousGuardians()
	var known []proc.Adoptable
	for _, p := range s.taken.State.Processes() {
		known = append(known, p.Adoptable)
	}
	s.upgraded = &upgraded{s.taken.ID, s.taken.Failed, len(known)}
	known = append(known, s.host.Guardian.Adoptable()...)
	s.host.Containment.EndStrays(s.taken.Children(), known, time.Now().Add(spec.ReapTimeout))
}

// announce publishes that this program has taken over, and stops the groups that are not configured
// any more.
func (s *start) announce() {
	n := len(s.allProcesses())
	if s.taken.Failed != "" {
		s.publish(Event{Kind: Alarm, Message: "not upgraded: the other program has taken over, and has failed: " + s.taken.Failed + "; this one goes on"})
	} else {
		s.publish(Event{Kind: Upgraded, Message: fmt.Sprintf("this program has taken over from %s, with %s: %s", s.taken.Program, worktext.Pluralize(n, "process"), s.taken.Reason)})
	}
	plan := &reloadPlan{reloader: s.reloader}
	for _, g := range s.allGroups() {
		if !s.cfg.has(g.name) {
			g.removed.Store(true)
			plan.removed = append(plan.removed, g)
		}
	}
	plan.remove()
}

// addGroups adds the groups, with what an earlier launcher has recorded about them or handed over.
func (s *start) addGroups(groups []spec.Group) {
	for _, cfg := range groups {
		added := newGroup(s.Manager, cfg, s.cfg.Source)
		if h := s.handed[cfg.Name]; h != nil {
			added.controller.ResumeFrom(h, s.before.Groups[cfg.Name])
			if !s.cfg.has(cfg.Name) { // the group is not configured any more; the method announce stops it
				added.controller.TakeChanged()
			}
		} else {
			added.controller.Restore(s.before.Groups[cfg.Name])
		}
		s.addGroup(added)
	}
}

// orphans returns the groups that are not configured any more, with the configuration that they
// have handed over, so that their processes are stopped by the rules of that configuration.
func (s *start) orphans(groups []spec.Group) []spec.Group {
	orphans := s.before.Orphans(groups)
	for i, o := range orphans {
		if h := s.handed[o.Name]; h != nil {
			o = h.Revisions.Wanted().Config
			o.DependsOn, o.Listen = nil, nil
			orphans[i] = o
		}
	}
	return orphans
}

// applyNext applies the configuration with which this program was started, if it differs from that
// of the program that has handed over.
func (g *group) applyNext() {
	const reason = "the launcher was upgraded, with another configuration"
	g.manager.host.Gate.Enter()
	defer g.manager.host.Gate.Leave()
	c := g.controller
	c.Lock()
	next := c.TakeChanged()
	if next == nil || c.IsClosed() {
		c.Unlock()
		return
	}
	var affected []controller.Process
	if same, keepsProcesses := c.Compare(next.Config); !keepsProcesses {
		// startRoll fails only if the group is stopping. Then no roll is needed, so the error is
		// ignored.
		g.startRoll(next.Config, next.Source, reason)
	} else if !same {
		affected, _ = c.Change(next.Config, next.Source, reason)
	}
	g.manager.publish(Event{Kind: Reloaded, Group: g.name, Message: reason})
	c.Unlock()
	for _, p := range affected {
		p.Apply(next.Config)
	}
}

// lockDirectory makes the directory if it is missing, and locks it.
func lockDirectory(dir string) (*os.File, error) {
	lock, err := statefile.Lock(dir)
	if err != nil && !errors.Is(err, ErrInUse) {
		return nil, &ConfigError{Field: "Dir", Rule: err.Error()}
	}
	return lock, err
}
