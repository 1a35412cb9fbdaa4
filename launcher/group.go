package launcher

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/launcher/internal/listeners"
	"github.com/swansong-go/swansong/launcher/internal/process"
	"github.com/swansong-go/swansong/launcher/internal/roll"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// A group runs the processes of one [GroupConfig]. Its goroutine, run, waits for a change, asks the
// controller what to do, and starts and stops processes. Orders, reloads and processes change the
// controller with mu held, and wake the goroutine.
type group struct {
	manager *Manager
	name    string
	scope   *ctxshutdown.Swansong
	wakeups chan struct{}
	emptied chan struct{} // closed when the group has been stopped and its last process is gone
	removed atomic.Bool   // a reload has removed the group
	shared  *process.Group

	mu         sync.Mutex
	controller *controller
}

func newGroup(m *Manager, cfg spec.Group, source any) *group {
	scope, _ := ctxshutdown.WithCancel(m.groupsScope, ctxshutdown.WithName(cfg.Name))
	g := &group{manager: m, name: cfg.Name, scope: scope, wakeups: make(chan struct{}, 1), emptied: make(chan struct{})}
	g.shared = &process.Group{
		Host: m.host, Name: cfg.Name, Scope: scope, GroupLogs: m.host.Logs.Group(cfg.Name, keptStatuses, m.printsTo), Changed: g.processChanged,
		Listeners: func() listeners.Set { return m.listenersOf(cfg.Name) }, Started: func() { m.wakeDependents(cfg.Name) },
	}
	g.controller = newController(cfg, source, g.publish)
	return g
}

func (g *group) publish(e Event) {
	e.Group = g.name
	g.manager.publish(e)
}

// wake makes the goroutine of run call reconcile.
func (g *group) wake() {
	select {
	case g.wakeups <- struct{}{}:
	default:
	}
}

// run returns when the group has been stopped and is empty.
func (g *group) run() {
	defer close(g.emptied)
	g.awaitAdopted()
	g.mu.Lock()
	handed, awaits := g.controller.handed != nil, g.controller.awaitsDependencies
	g.mu.Unlock()
	if awaits && !g.awaitDependencies() {
		g.close()
		return
	}
	if handed {
		g.applyNext()
	} else {
		g.replaceAdopted()
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	stop := g.scope.Done()
	for {
		timer.Stop()
		if at := g.reconcile(time.Now()); !at.IsZero() {
			timer.Reset(time.Until(at))
		}
		select {
		case <-g.wakeups:
		case <-timer.C:
		case <-stop:
			g.close()
			return
		}
	}
}

// awaitDependencies waits until the groups that this one depends on satisfy its conditions. It
// returns false if the group is stopped before.
func (g *group) awaitDependencies() bool {
	if g.beginIfDependingOn(spec.Group{}) {
		return g.scope.Err() == nil
	}
	events, stop := g.manager.events.Watch()
	defer stop()
	for {
		var missing []string
		cfg := g.config() // a reload can change DependsOn while the group waits
		for _, name := range cfg.DependsOn {
			switch condition := cfg.ConditionOf(name); {
			case g.manager.satisfies(name, condition):
			case condition == spec.Healthy:
				missing = append(missing, name)
			default:
				missing = append(missing, fmt.Sprintf("%s (%s)", name, condition))
			}
		}
		g.mu.Lock()
		g.controller.waitsFor = missing
		g.mu.Unlock()
		if len(missing) == 0 && g.beginIfDependingOn(cfg) {
			return g.scope.Err() == nil
		}
		select {
		case <-events:
		case <-g.wakeups:
		case <-g.scope.Done():
			return false
		}
	}
}

// wakeDependents makes the groups that depend on the named one look at their conditions again. Other
// changes wake them by an event, but no event says that a process has been started.
func (m *Manager) wakeDependents(name string) {
	for _, g := range m.allGroups() {
		if slices.Contains(g.config().DependsOn, name) {
			g.wake()
		}
	}
}

// beginIfDependingOn ends the wait for dependencies and returns true, if the dependencies of the
// group are still those of cfg.
func (g *group) beginIfDependingOn(cfg spec.Group) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.controller
	if now := c.config(); !slices.Equal(now.DependsOn, cfg.DependsOn) || !maps.Equal(now.Conditions, cfg.Conditions) {
		return false
	}
	c.awaitsDependencies = false
	if c.roll != nil { // the roll of adopted processes could make no progress until now
		c.roll.DelayProgress(time.Since(c.epoch))
	}
	return true
}

// close stops all processes after the groups that depend on this one are empty, and returns when
// the processes are gone.
func (g *group) close() {
	g.mu.Lock()
	g.controller.stopping = true
	g.controller.endRoll(&RollError{Group: g.name, Cause: ctxshutdown.ErrShutdown})
	g.mu.Unlock()
	forced := g.scope.Work().Done()
	for _, other := range g.manager.allGroups() {
		if slices.Contains(other.config().DependsOn, g.name) {
			select {
			case <-other.emptied:
			case <-forced:
			}
		}
	}
	g.mu.Lock()
	left := g.controller.instances.sorted()
	g.mu.Unlock()
	reason := "launcher: " + strings.TrimPrefix(context.Cause(g.scope).Error(), "launcher: ")
	if g.removed.Load() {
		reason = "launcher: a reload has removed the group"
	}
	for _, i := range left {
		go i.Stop(reason, 0)
	}
	for _, i := range left {
		// Do not wait until they have ended, because a call of the router may still hold a guard of
		// the scope.
		<-i.Reaped()
	}
}

// reconcile starts and stops processes as the controller decides. It returns when to call it again
// if nothing changes before; zero means never.
func (g *group) reconcile(now time.Time) (next time.Time) {
	g.manager.host.Gate.Enter()
	defer g.manager.host.Gate.Leave()
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.controller
	again := func(t time.Time) {
		if t.After(now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	c.observeReady(now, again)
	for acting := true; acting; {
		switch a := c.next(now); a.Do {
		case roll.Start:
			acting = g.start(c.revisionToStart(a.Version))
		case roll.Stop:
			g.stop(a)
		case roll.Wait:
			acting = false
			if a.Until > 0 {
				again(c.epoch.Add(a.Until))
			}
		}
	}
	g.checkCanaries(now, again)
	if !c.backOff.GivenUp {
		again(c.backOff.NotBefore)
	}
	h := c.health(now)
	if h.Healthy != c.healthy {
		c.healthy = h.Healthy
		kind := GroupUnhealthy
		if h.Healthy {
			kind = GroupHealthy
		}
		g.publish(Event{Kind: kind, Message: fmt.Sprintf("%d of %d ready", h.Ready, h.Desired)})
	}
	if finished := c.isFinished(); finished != c.finished {
		c.finished = finished
		if finished {
			g.publish(Event{Kind: GroupFinished, Message: h.Message})
		}
	}
	c.settleOrders(h)
	return next
}

// start starts a process of a revision. It returns false if the group is stopping. g.mu is held.
func (g *group) start(revision int) bool {
	c := g.controller
	return g.launch(process.New(g.shared, c.newID(), revision, c.revisions.ByNumber[revision].Config))
}

// launch runs a process. It returns false if the group is stopping. g.mu is held.
func (g *group) launch(p *process.Process) bool {
	groupGuard, ok := g.scope.TryGuard()
	if !ok {
		return false
	}
	g.controller.instances.add(p)
	g.manager.register(p, g)
	p.Launch()
	groupGuard.Release()
	return true
}

// stop stops the process that the controller names. g.mu is held.
func (g *group) stop(a roll.Action) {
	p, reason := g.controller.onStop(a)
	g.manager.host.Gate.Enter() // until the process knows
	go func() {
		defer g.manager.host.Gate.Leave()
		p.Stop(reason, 0)
	}()
}

// processChanged is called after each change of a process's state.
func (g *group) processChanged(p *process.Process) {
	st := p.Status()
	g.mu.Lock()
	c := g.controller
	if i := c.instances.of(p); i != nil {
		if st.PID != 0 {
			c.backOff.Started()
		}
		// An unhealthy process is replaced before it has ended, because a process that fails may
		// take long to drain.
		if st.State == Unhealthy || st.State.Ended() {
			c.onExit(i, st)
		}
		if st.State.Ended() {
			g.remove(i, st)
		}
	}
	g.mu.Unlock()
	g.wake()
}

// remove moves a process from those that exist to those that have ended lately. g.mu is held.
func (g *group) remove(i *instance, st Status) {
	c := g.controller
	delete(c.instances, i.ID())
	g.manager.host.StateFile.Changed()
	c.ended = append(c.ended, st)
	if len(c.ended) > keptStatuses {
		if old := g.manager.forgetProcess(c.ended[0].ID); old != nil {
			old.RemoveLogs()
		}
		c.ended = slices.Delete(c.ended, 0, 1)
	}
}

// stopProcess stops a process by order. Without a replacement the group has one process fewer from
// then on.
func (g *group) stopProcess(p *process.Process, reason string, grace time.Duration, replace bool) {
	g.manager.host.Gate.Enter()
	defer g.manager.host.Gate.Leave()
	g.mu.Lock()
	if i := g.controller.instances.of(p); i != nil && g.controller.onStopOrder(i, replace) {
		g.manager.host.StateFile.Changed() // the state file is written even if the process was stopping already
	}
	g.mu.Unlock()
	g.wake()
	p.Stop(reason, grace)
}

// config returns the configuration that the group wants. After a failed roll, that is the
// configuration from before the roll.
func (g *group) config() spec.Group {
	g.mu.Lock()
	defer g.mu.Unlock()
	return *g.controller.config()
}

// source returns the Source of the Config that the wanted configuration was loaded with.
func (g *group) source() any {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.controller.revisions.Wanted().Source
}

// processes returns the processes that exist, oldest first.
func (g *group) processes() (all []*process.Process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, i := range g.controller.instances.sorted() {
		all = append(all, i.instanceProcess.(*process.Process))
	}
	return all
}

// givenUp returns a *GivenUpError if the group was given up.
func (g *group) givenUp() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.controller.backOff.GivenUp {
		return g.controller.givenUpError()
	}
	return nil
}

// isEmpty reports whether the group has been stopped and its last process is gone.
func (g *group) isEmpty() bool {
	select {
	case <-g.emptied:
		return true
	default:
		return false
	}
}
