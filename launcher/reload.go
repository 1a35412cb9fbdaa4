package launcher

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
)

var (
	// ErrReloading is returned where another configuration is being read or taken over already.
	ErrReloading = errors.New("launcher: another configuration is being read, or taken over; wait for the end of that")

	// ErrNotReloaded matches all errors of Reload and Reread by which nothing was taken over. It is the text of none of them.
	ErrNotReloaded = errors.New("launcher: nothing was taken over")
)

// Reload takes over another configuration, and returns when that is done, with all that has failed of it, joined:
//
//   - Groups that are new are started, and those that are gone are drained.
//   - A group of which something differs that a process is started with (Command, Env, WorkDir, Protocol, Log) is rolled,
//     and so is one whose roll is paused: that roll is given up.
//   - All else of a group holds at once: how many there are, and for the processes that run, their limits. One that was given
//     up begins anew.
//   - Of the rest, TotalDeadline (but see TotalDeadlineDerived), Redact and Source hold at once. What takes a new launcher is
//     refused, by a [*ConfigError]: another Dir, and another Listen of a group that there is. Router, Logger, Output, Helper,
//     Guardian and Reread stay as they are.
//
// A roll that turns back puts back all of a group but DependsOn, which stays as it was loaded last.
//
// Nothing has changed where the error matches [ErrNotReloaded]: the configuration is refused, or the error matches
// [ErrReloading], or [ErrRolling] because a group that would change is being rolled. What was begun goes on when ctx ends.
func (m *Manager) Reload(ctx context.Context, next Config, reason string) error {
	wait, err := m.reload(next, reason)
	if err != nil {
		return err
	}
	return wait(ctx)
}

func (m *Manager) reload(next Config, reason string) (wait func(ctx context.Context) error, err error) {
	if !m.reloading.TryLock() {
		return nil, refused(ErrReloading)
	}
	defer m.reloading.Unlock()
	wait, err = m.takeOver(next, reason, nil)
	return wait, refused(next.located(err))
}

// A refusal is an error by which nothing was taken over.
type refusal struct{ error }

func (r refusal) Unwrap() error        { return r.error }
func (r refusal) Is(target error) bool { return target == ErrNotReloaded }

func refused(err error) error {
	if err == nil {
		return nil
	}
	return refusal{err}
}

// located says where the fault is, if somebody knows.
func (c Config) located(err error) error {
	if err == nil || c.Locate == nil {
		return err
	}
	return c.Locate(err)
}

// takeOver begins, for who has m.reloading, and returns what waits for the rest. From the last look at what the groups are doing to
// the first thing that is done to them it has all of them locked: an order for one of them comes before, and is seen, or after. It
// tells of the changes itself: whoever looked at the file before may have seen others.
func (m *Manager) takeOver(next Config, reason string, changes []string) (wait func(ctx context.Context) error, err error) {
	plan, err := m.plan(next)
	if err != nil {
		return nil, err
	}
	held, ok := m.groupsScope.TryGuard() // so that a stop of everything from now on finds all that is done here
	if !ok {
		plan.abandon()
		return nil, m.notReloaded()
	}
	defer held.Release()
	unlock := plan.lock()
	if err := plan.decide(); err != nil {
		unlock()
		plan.abandon()
		return nil, err
	}
	m.redactor.Store(&redactor{f: next.Redact})
	m.mu.Lock()
	for _, g := range plan.gone {
		had := m.totalDeadline()
		g.had = &had
	}
	m.cfg.TotalDeadline, m.cfg.TotalDeadlineDerived, m.cfg.Source = next.TotalDeadline, next.TotalDeadlineDerived, next.Source
	for _, name := range m.order { // those that are gone, also by an earlier reload, until they are empty
		if !slices.Contains(plan.order, name) {
			plan.order = append(plan.order, name)
		}
	}
	m.order = plan.order
	for _, g := range plan.added {
		m.groups[g.name], m.listeners[g.name] = g, plan.claimed[g.name]
	}
	m.mu.Unlock()
	if len(changes) == 0 {
		m.publish(Event{Kind: Reloaded, Message: reason})
	}
	for _, c := range changes {
		m.publish(Event{Kind: Reloaded, Message: reason + ": " + c})
	}

	var all []func(ctx context.Context) error
	var tell []func()
	for _, c := range slices.Concat(plan.same, plan.changed) {
		c.group.sources[c.group.revision] = next.Source
	}
	for _, c := range plan.changed {
		tell = append(tell, c.group.take(c.cfg))
	}
	for _, c := range plan.rolled {
		l, err := c.group.startRoll(c.cfg, next.Source, reason) // which fails only where all is about to stop
		all = append(all, func(ctx context.Context) error {
			if err != nil {
				return err
			}
			return c.group.wait(ctx, l)
		})
	}
	unlock()
	for _, f := range tell {
		f()
	}
	for _, g := range plan.added {
		m.loop(g)
	}
	m.memory.note()
	for _, g := range plan.gone {
		g.scope.Shutdown()
		forgotten := make(chan struct{}) // with its listeners, which another group may have then
		go func() { defer close(forgotten); m.drop(g) }()
		all = append(all, func(ctx context.Context) error {
			select {
			case <-forgotten:
				return nil
			case <-ctx.Done():
				return fmt.Errorf("launcher: waiting for the end of %s: %w", g.name, context.Cause(ctx))
			}
		})
	}
	return func(ctx context.Context) error {
		var errs []error
		for _, f := range all {
			errs = append(errs, f(ctx))
		}
		return errors.Join(errs...)
	}, nil
}

// notReloaded is for a launcher that stops.
func (m *Manager) notReloaded() error {
	return fmt.Errorf("launcher: not reloaded: %w", context.Cause(m.groupsScope))
}

// A plan is what a reload does. Making it changes nothing but what is claimed for the groups that are added.
type plan struct {
	order                 []string
	added, gone           []*group
	claimed               map[string]inheritance
	stay                  []change // the groups that there are, and are to be
	same, changed, rolled []change // what decide has found these to be
}

type change struct {
	group *group
	cfg   GroupConfig
}

func (m *Manager) plan(next Config) (_ *plan, err error) {
	next.Guardian = m.cfg.Guardian // the one that there is
	if err := next.Validate(); err != nil {
		return nil, err
	}
	if m.groupsScope.Err() != nil {
		return nil, m.notReloaded()
	}
	if next.Dir != m.cfg.Dir {
		return nil, &ConfigError{Field: "Dir", Rule: fmt.Sprintf("cannot change from %s while the launcher runs; start another one", m.cfg.Dir)}
	}
	if next.Admin != m.cfg.Admin {
		return nil, &ConfigError{Field: "Admin", Rule: "cannot change while the launcher runs; start another one. New certificates are read without a reload"}
	}
	p := &plan{claimed: map[string]inheritance{}}
	defer func() {
		if err != nil {
			p.abandon()
		}
	}()
	var added []GroupConfig
	for _, cfg := range next.Groups {
		cfg = cfg.withDefaults()
		if err := checkFiles(cfg); err != nil {
			return nil, err
		}
		p.order = append(p.order, cfg.Name)
		g, err := m.group(cfg.Name)
		if err != nil {
			if cfg.OnLauncherDeath == Keep && len(cfg.Listen) > 0 {
				return nil, &ConfigError{cfg.Name, "OnLauncherDeath", "a group that keeps its listeners cannot be added while the launcher runs; start another launcher, or use kill"}
			}
			added = append(added, cfg)
			continue
		}
		if leaving := g.leaving(); leaving != nil {
			if m.groupsScope.Err() != nil {
				return nil, m.notReloaded()
			}
			return nil, leaving
		}
		if err := g.keepsListeners(cfg); err != nil {
			return nil, err
		}
		p.stay = append(p.stay, change{g, cfg})
	}
	unlock := p.lock()
	err = p.decide() // for now, and before anything is claimed
	unlock()
	if err != nil {
		return nil, err
	}
	for _, c := range p.rolled {
		if err := c.group.checkLog(c.cfg); err != nil {
			return nil, err
		}
	}
	for _, g := range m.allGroups() {
		if !slices.Contains(p.order, g.name) && g.scope.Err() == nil {
			p.gone = append(p.gone, g)
		}
	}
	for _, cfg := range added { // last, since others can see it
		if taken := m.mayListen(cfg, p.claimed, next.has); taken != nil {
			return nil, taken
		}
		if p.claimed[cfg.Name], err = m.claim(cfg, remembered{}); err != nil {
			return nil, err
		}
		p.added = append(p.added, newGroup(m, cfg, next.Source))
	}
	return p, nil
}

// lock locks the groups that stay: in the order of the file, which is no matter, since nobody else locks more than one.
func (p *plan) lock() (unlock func()) {
	for _, c := range p.stay {
		c.group.mu.Lock()
	}
	return func() {
		for _, c := range p.stay {
			c.group.mu.Unlock()
		}
	}
}

// decide finds out what is to be done to the groups, which are locked.
func (p *plan) decide() error {
	p.same, p.changed, p.rolled = nil, nil, nil
	for _, c := range p.stay {
		same, settled, err := c.group.compare(c.cfg)
		if err == nil && !(same && settled) {
			err = c.group.mayRoll()
		}
		switch {
		case err != nil:
			return err
		case !settled:
			p.rolled = append(p.rolled, c)
		case !same:
			p.changed = append(p.changed, c)
		default:
			p.same = append(p.same, c)
		}
	}
	return nil
}

// abandon gives back what was claimed.
func (p *plan) abandon() {
	for _, in := range p.claimed {
		in.close()
	}
	for _, g := range p.added {
		g.scope.Shutdown()
	}
}

// drop forgets a group that is gone, once nothing is done any more for its processes. That is more than that they have ended: a
// router that is still being told of the last one would take it for one of the next group of this name. But nobody is there to
// answer by then, so whoever connects is refused before.
func (m *Manager) drop(g *group) {
	<-g.emptied
	m.mu.Lock()
	in := m.listeners[g.name]
	m.mu.Unlock()
	in.end()
	<-g.scope.Completion().Done()
	g.mu.Lock()
	for _, st := range g.recent { // before another group can have the name, whose processes have the same ones
		m.forget(st.ID)
	}
	g.mu.Unlock()
	m.logs.forget(g)
	m.mu.Lock()
	delete(m.groups, g.name)
	delete(m.listeners, g.name)
	m.order = slices.DeleteFunc(slices.Clone(m.order), func(name string) bool { return name == g.name })
	m.mu.Unlock()
	m.memory.note()
}

// compare reports whether the group has this configuration, and whether its processes can go on with it. The error matches
// [ErrRolling] where it is another one, and the group, which is locked, is being rolled.
func (g *group) compare(cfg GroupConfig) (same, settled bool, err error) {
	paused := g.roll != nil && g.roll.state.Paused
	same = reflect.DeepEqual(g.cfg, cfg)
	if g.roll != nil && !paused && !same {
		return false, false, fmt.Errorf("%w: group %q", ErrRolling, g.name)
	}
	return same, !paused && g.cfg.sameProcess(cfg), nil
}

// sameProcess reports whether a process of this configuration can go on as one of that: all that may differ is what the
// launcher does with it.
func (g GroupConfig) sameProcess(o GroupConfig) bool {
	g.Desired, g.MinHealthy, g.MaxSurge = o.Desired, o.MinHealthy, o.MaxSurge
	g.HealthCheckTimeout, g.MinReady = o.HealthCheckTimeout, o.MinReady
	g.LivenessInterval, g.LivenessTimeout, g.LivenessFailures = o.LivenessInterval, o.LivenessTimeout, o.LivenessFailures
	g.Shutdown, g.Restart, g.Roll = o.Shutdown, o.Restart, o.Roll
	g.PreStop, g.DependsOn = o.PreStop, o.DependsOn
	return reflect.DeepEqual(g, o)
}

// checkLog makes where another configuration prints to, or refuses it, as [Start] does. It waits for the disk, and so without a lock;
// where that has not changed, nobody has to.
func (g *group) checkLog(cfg GroupConfig) error {
	if g.config().Log == cfg.Log {
		return nil
	}
	return cfg.checkLog()
}

// keepsListeners refuses others: the launcher holds them for the processes that run.
func (g *group) keepsListeners(cfg GroupConfig) error {
	now := g.config()
	if len(cfg.Listen) > 0 && now.OnLauncherDeath != cfg.OnLauncherDeath {
		return &ConfigError{g.name, "OnLauncherDeath", "cannot change while the launcher runs and listens for the group; start another launcher"}
	}
	if !slices.Equal(now.Listen, cfg.Listen) {
		return &ConfigError{g.name, "Listen", "cannot change while the launcher runs; start another launcher, or another group"}
	}
	return nil
}

// leaving refuses a group as long as one of its name is there that an earlier reload has removed.
func (g *group) leaving() *ConfigError {
	if g.scope.Err() == nil {
		return nil
	}
	return &ConfigError{g.name, "Name", "a group of this name was removed, and has not come to its end; add it again when that is gone, which the reload that " +
		"has removed it can wait for"}
}

// take takes over a configuration that asks for no other processes. The group is locked; what it returns tells its processes,
// and wants it unlocked.
func (g *group) take(cfg GroupConfig) (tell func()) {
	if cfg.Desired != g.cfg.Desired {
		g.short = shortfall{}
	}
	g.cfg, g.configs[g.revision], g.givenUpOn, g.missing = cfg, cfg, 0, 0
	if g.givenUp { // with what has failed
		g.forgive()
	}
	all := slices.DeleteFunc(g.sorted(), func(p *process) bool { return p.revision != g.revision })
	return func() {
		for _, p := range all {
			p.take(cfg)
		}
		g.wake()
	}
}

func (c Config) has(group string) bool {
	return slices.ContainsFunc(c.Groups, func(g GroupConfig) bool { return g.Name == group })
}

// Reread reads the configuration anew, by Config.Reread, and returns how it differs. Unless that is all that is wanted, it is
// then taken over, as [Manager.Reload] does, and each change is an event of the kind [Reloaded]. Then nobody else reads one to take
// it over, or takes one over: what is taken over last is what was read last. An error that does not match
// [ErrNotReloaded] is of what was begun.
func (m *Manager) Reread(ctx context.Context, dry bool, reason string) (changes []string, err error) {
	changes, _, wait, err := m.reread(ctx, dry, reason)
	if err != nil {
		return changes, err
	}
	return changes, wait(ctx)
}

func (m *Manager) reread(ctx context.Context, dry bool, reason string) (changes []string, file string, wait func(context.Context) error, err error) {
	if m.cfg.Reread == nil {
		return nil, "", nil, refused(errors.New("launcher: this launcher has no file to read again: it was told by flags, or by a program, what to run"))
	}
	if !dry {
		if !m.reloading.TryLock() {
			return nil, "", nil, refused(ErrReloading)
		}
		defer m.reloading.Unlock()
	}
	wait = func(context.Context) error { return nil }
	next, changes, err := m.cfg.Reread(ctx, m.source())
	if err == nil {
		changes = append(changes, m.besides(next)...)
	}
	if dry && len(changes) > 0 {
		return changes, next.File, wait, nil
	}
	if err != nil || dry || len(changes) == 0 {
		return changes, next.File, wait, refused(err)
	}
	wait, err = m.takeOver(next, reason, changes)
	return changes, next.File, wait, refused(next.located(err))
}

// source is what Reread compares with: each group as it is.
func (m *Manager) source() any {
	m.mu.Lock()
	source := m.cfg.Source
	m.mu.Unlock()
	for _, g := range m.allGroups() {
		if s, ok := source.(GroupSource); ok {
			source = s.WithGroup(g.name, g.source())
		}
	}
	return source
}

func (g *group) source() any {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sources[g.revision]
}

// besides says what taking over a configuration does, or why it is refused, where that is not for what differs in it.
func (m *Manager) besides(next Config) (lines []string) {
	claimed := map[string]inheritance{} // as it will be
	for _, cfg := range next.Groups {
		g, err := m.group(cfg.Name)
		if err != nil {
			cfg = cfg.withDefaults()
			if taken := m.mayListen(cfg, claimed, next.has); taken != nil {
				lines = append(lines, fmt.Sprintf("! %s: %s (refused)", cfg.Name, taken.Rule))
			}
			claimed[cfg.Name] = inheritance{wanted: cfg.Listen}
			continue
		}
		if leaving := g.leaving(); leaving != nil {
			lines = append(lines, fmt.Sprintf("! %s: %s (refused)", cfg.Name, leaving.Rule))
		}
		if r := g.pausedRoll(); r != nil {
			lines = append(lines, fmt.Sprintf("~ %s: the roll to revision %d is paused, and given up for another one (rolls the group)", g.name, r.to))
		}
	}
	return lines
}
