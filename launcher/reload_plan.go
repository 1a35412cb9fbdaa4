package launcher

import (
	"context"
	"fmt"
	"slices"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/launcher/internal/controller"
	"github.com/swansong-go/swansong/launcher/internal/listeners"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

// A reloadPlan is what a reload will do. Making a plan changes nothing, but claims listeners and
// log files for the groups that are added.
type reloadPlan struct {
	reloader *reloader
	next     Config

	order                      []string
	existing                   []change // the groups that the reload does not remove, with their next configurations
	unchanged, changed, rolled []change // the changes in existing, sorted by what has to be done; see classify
	removed                    []*group

	addedConfigs []spec.Group
	added        []*group
	secrets      []string                 // the content of the secret files
	claimed      map[string]listeners.Set // listeners that were opened for the added groups, by name of the group
}

// A change is the next configuration of an existing group.
type change struct {
	group *group
	cfg   spec.Group
}

// plan checks newConfig and returns what has to be done. It refuses a configuration that cannot be
// applied now.
func (r *reloader) plan(newConfig Config) (_ *reloadPlan, err error) {
	newConfig.Guardian = r.manager.cfg.Guardian // the guardian (see Config.Guardian) is started only once, so a reload cannot change it
	p := &reloadPlan{reloader: r, next: newConfig, claimed: map[string]listeners.Set{}}
	if err := p.checkLauncher(); err != nil {
		return nil, err
	}
	for _, g := range newConfig.Groups {
		if err := p.place(g.resolve()); err != nil {
			return nil, err
		}
	}
	unlock := p.lock()
	// This call of classify finds most of what is refused, before listeners and files are claimed.
	// The groups are not locked after it, so apply calls classify again.
	err = p.classify()
	unlock()
	if err != nil {
		return nil, err
	}
	for _, c := range p.rolled {
		if err := c.checkLog(); err != nil {
			return nil, err
		}
	}
	for _, g := range r.manager.allGroups() {
		if !slices.Contains(p.order, g.name) && g.scope.Err() == nil {
			p.removed = append(p.removed, g)
		}
	}
	// Claim listeners and files after all checks, because other processes can see what is claimed.
	if err := p.claim(); err != nil {
		p.abandon()
		return nil, err
	}
	return p, nil
}

// checkLauncher checks everything but the groups.
func (p *reloadPlan) checkLauncher() (err error) {
	m, next := p.reloader.manager, p.next
	if err := next.Validate(); err != nil {
		return err
	}
	if p.secrets, err = next.readSecretFiles(); err != nil {
		return err
	}
	if m.groupsScope.Err() != nil {
		return p.reloader.stoppedError()
	}
	if next.Dir != m.cfg.Dir {
		return &ConfigError{Field: "Dir", Rule: fmt.Sprintf("cannot change from %s while the launcher runs; start another launcher", m.cfg.Dir)}
	}
	if next.Admin != m.cfg.Admin {
		return &ConfigError{Field: "Admin", Rule: "cannot change by a reload; upgrade the launcher, or start another launcher. New certificates are read without a reload"}
	}
	return nil
}

// place adds cfg, a group of the next configuration, to p.existing if a group of this name exists,
// and otherwise to p.addedConfigs. It returns an error if the reload must be refused because of the
// group.
func (p *reloadPlan) place(cfg spec.Group) error {
	if err := p.reloader.manager.cfg.checkFiles(cfg); err != nil {
		return err
	}
	p.order = append(p.order, cfg.Name)
	g, err := p.reloader.manager.group(cfg.Name)
	if err != nil {
		if cfg.OnLauncherDeath == Keep && len(cfg.Listen) > 0 {
			return &ConfigError{cfg.Name, "OnLauncherDeath", "a group with keep and listeners cannot be added by a reload, because the guardian gets listeners only at its start; upgrade the launcher, start another one, or use kill"}
		}
		p.addedConfigs = append(p.addedConfigs, cfg)
		return nil
	}
	if removed := g.checkNotRemoved(); removed != nil {
		if p.reloader.manager.groupsScope.Err() != nil {
			return p.reloader.stoppedError()
		}
		return removed
	}
	c := change{g, cfg}
	if err := c.checkListeners(); err != nil {
		return err
	}
	p.existing = append(p.existing, c)
	return nil
}

// claim opens the listeners of the groups that are added, and creates their log directories or log
// files.
func (p *reloadPlan) claim() (err error) {
	m := p.reloader.manager
	for _, cfg := range p.addedConfigs {
		if taken := m.checkNewListeners(cfg, p.claimed, p.next.has); taken != nil {
			return taken
		}
		if p.claimed[cfg.Name], err = open(cfg, statefile.State{}); err != nil {
			return err
		}
		p.added = append(p.added, newGroup(m, cfg, p.next.Source))
	}
	return nil
}

// abandon closes the listeners and stops the scopes that were made for the added groups.
func (p *reloadPlan) abandon() {
	for _, set := range p.claimed {
		set.Close()
	}
	for _, g := range p.added {
		g.scope.Shutdown()
	}
}

// lock locks the existing groups. Their order does not matter, because no other goroutine locks
// more than one group.
func (p *reloadPlan) lock() (unlock func()) {
	for _, c := range p.existing {
		c.group.controller.Lock()
	}
	return func() {
		for _, c := range p.existing {
			c.group.controller.Unlock()
		}
	}
}

// classify sorts the existing groups, which are locked, by what has to be done to them.
func (p *reloadPlan) classify() error {
	p.unchanged, p.changed, p.rolled = nil, nil, nil
	for _, c := range p.existing {
		same, keepsProcesses := c.group.controller.Compare(c.cfg)
		if !(same && keepsProcesses) {
			if err := c.group.checkRunning(); err != nil {
				return err
			}
		}
		switch {
		case !keepsProcesses:
			p.rolled = append(p.rolled, c)
		case !same:
			p.changed = append(p.changed, c)
		default:
			p.unchanged = append(p.unchanged, c)
		}
	}
	return nil
}

// register replaces the groups of the manager, and their order, by those of the plan.
func (p *reloadPlan) register() {
	m := p.reloader.manager
	var removed []*ctxshutdown.Swansong
	for _, g := range p.removed {
		removed = append(removed, g.scope)
	}
	m.host.Deadline.Configure(p.next.TotalDeadline, p.next.TotalDeadlineDerived, removed...)
	for _, g := range p.removed {
		g.removed.Store(true)
	}
	source := p.next.Source
	p.reloader.loaded.Store(&source)
	m.registry.reload(p.order, p.added, p.claimed)
}

// change applies the changes that need no new roll. The caller must unlock the groups and then call
// notify, which passes the changes to the processes. Each function in waits waits for a rollback
// that the changes have begun.
func (p *reloadPlan) change(reason string) (notify func(), waits []func(context.Context) error) {
	for _, c := range p.unchanged {
		c.group.controller.SetSource(p.next.Source)
	}
	processes := make([][]controller.Process, len(p.changed))
	for i, c := range p.changed {
		affected, result := c.group.controller.Change(c.cfg, p.next.Source, reason)
		if result != nil {
			waits = append(waits, func(ctx context.Context) error { return c.group.awaitRollback(ctx, result) })
		}
		processes[i] = affected
	}
	return func() {
		for i, c := range p.changed {
			for _, process := range processes[i] {
				process.Apply(c.cfg)
			}
			c.group.wake()
		}
	}, waits
}

// roll begins the rolls, and returns functions that wait for them.
func (p *reloadPlan) roll(reason string) (waits []func(context.Context) error) {
	for _, c := range p.rolled {
		// If startRoll fails, the launcher is about to stop. The error is returned by the function
		// that waits for the roll.
		result, err := c.group.startRoll(c.cfg, p.next.Source, reason)
		waits = append(waits, func(ctx context.Context) error {
			if err != nil {
				return err
			}
			return c.group.awaitRoll(ctx, result)
		})
	}
	return waits
}

// remove stops the groups that are not in the next configuration, and returns functions that wait
// until the groups are gone. Then another group may use their listeners.
func (p *reloadPlan) remove() (waits []func(context.Context) error) {
	for _, g := range p.removed {
		g.scope.Shutdown()
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			p.reloader.forget(g)
		}()
		waits = append(waits, func(ctx context.Context) error {
			select {
			case <-gone:
				return nil
			case <-ctx.Done():
				return fmt.Errorf("launcher: stopped waiting for the end of %s: %w", g.name, context.Cause(ctx))
			}
		})
	}
	return waits
}

// forget waits for the end of a removed group and forgets it, so that its name can be used
// again. It waits for the whole scope and not only for the processes: a router that is still being
// called for the last process would mistake it for one of the next group. Meanwhile no process
// accepts connections, so the listeners are ended first, and clients are refused.
func (r *reloader) forget(g *group) {
	m := r.manager
	<-g.emptied
	m.listenersOf(g.name).Shutdown()
	<-g.scope.Completion().Done()
	// The ended processes are forgotten now, because the next group of this name uses their ids
	// again.
	for _, st := range ask(g, (*controller.Controller).Ended) {
		m.forgetProcess(st.ID)
	}
	m.host.Deadline.Forget(g.scope)
	m.dropGroup(g)
	m.host.StateFile.Changed()
}

// checkNotRemoved refuses a group while a group of the same name is stopping, because an earlier
// reload has removed it.
func (g *group) checkNotRemoved() *ConfigError {
	if g.scope.Err() == nil {
		return nil
	}
	return &ConfigError{g.name, "Name", "a group of this name was removed and has not ended yet; wait until it has ended, as the reload that removed it does, " +
		"and add it again"}
}

// checkLog creates the log directory or the log file of the next configuration, as [Start] does, or
// returns why it cannot. It waits for the disk, so no lock is held. It does nothing if the logs do
// not change.
func (c change) checkLog() error {
	if c.group.config().Log == c.cfg.Log {
		return nil
	}
	return checkLog(c.cfg)
}

// checkListeners returns an error if the configuration changes the listeners of the group, because
// its running processes use the present listeners.
func (c change) checkListeners() error {
	now := c.group.config()
	if len(c.cfg.Listen) > 0 && now.OnLauncherDeath != c.cfg.OnLauncherDeath {
		return &ConfigError{c.group.name, "OnLauncherDeath", "cannot change by a reload while the launcher listens for the group; upgrade the launcher, or start another launcher"}
	}
	if !slices.Equal(now.Listen, c.cfg.Listen) {
		return &ConfigError{c.group.name, "Listen", "cannot change by a reload; upgrade the launcher, start another launcher, or add another group"}
	}
	return nil
}
