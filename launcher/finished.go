package launcher

import (
	"context"
	"errors"
	"fmt"

	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// Finished waits until all groups are finished: they have no processes, and start none without an
// order. That is so when the restart policy replaces none of the processes that have ended, when a
// group was given up, and when it waits for a group that is finished and not healthy.
//
// Finished returns nil if no process has failed for good. Otherwise the error says for each group
// what has failed. It also returns an error when ctx ends, and when the manager is stopped before.
func (m *Manager) Finished(ctx context.Context) error {
	if ctx == nil {
		panic("launcher: Finished with a nil context")
	}
	events, stop := m.events.Watch()
	defer stop()
	for {
		if finished, err := m.finished(); finished {
			return err
		}
		select {
		case <-events:
		case <-m.scope.Done():
			return fmt.Errorf("launcher: the launcher was stopped before its groups were finished: %w", context.Cause(m.scope))
		case <-ctx.Done():
			return fmt.Errorf("launcher: the wait for groups to finish has ended: %w", context.Cause(ctx))
		}
	}
}

// finished reports whether all groups are finished, and if so, what has failed.
func (m *Manager) finished() (finished bool, err error) {
	for _, g := range m.allGroups() {
		needed := m.waitsInVainFor(g)
		switch {
		case needed != "":
			err = errors.Join(err, fmt.Errorf("launcher: group %q did not start: it waits until group %q is %s, but %q has finished without that", g.name, needed, g.conditionOf(needed), needed))
		case !g.isFinished():
			return false, nil
		default:
			err = errors.Join(err, g.failure())
		}
	}
	return true, err
}

// waitsInVainFor returns the name of a group that g waits for and that cannot become healthy
// without an order. It returns an empty string if there is none.
func (m *Manager) waitsInVainFor(g *group) string {
	if !g.awaitsDependencies() {
		return ""
	}
	cfg := g.config()
	for _, name := range cfg.DependsOn {
		needed, err := m.group(name)
		if err != nil {
			continue
		}
		if needed.isFinished() && !m.satisfies(name, cfg.ConditionOf(name)) || m.waitsInVainFor(needed) != "" {
			return name
		}
	}
	return ""
}

// conditionOf returns the condition under which g starts after a group that it depends on.
func (g *group) conditionOf(name string) spec.Condition {
	cfg := g.config()
	return cfg.ConditionOf(name)
}

func (g *group) awaitsDependencies() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.controller.awaitsDependencies
}

// isStarted reports whether the processes of the group have been started, or have finished.
func (g *group) isStarted() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	c, started := g.controller, 0
	for _, i := range c.instances {
		if !i.accounted && i.Status().PID != 0 {
			started++
		}
	}
	return !c.awaitsDependencies && started >= c.desired()
}

func (g *group) isFinished() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.controller.isFinished()
}

// isFinished reports whether the group has no processes, and starts none without an order. A group
// that was stopped by order is not finished: the operator is expected to start it.
func (c *controller) isFinished() bool {
	return !c.awaitsDependencies && !c.revisions.Wanted().Shortfall.Stopped && c.roll == nil && len(c.instances) == 0 && (c.backOff.GivenUp || c.desired() == 0)
}

// failure returns the error of a finished group, nil if none of its processes has failed for good.
func (g *group) failure() error {
	if err := g.givenUp(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if short := g.controller.revisions.Wanted().Shortfall; short.Failed > 0 {
		return fmt.Errorf("launcher: group %q: %d of %d processes have failed", g.name, short.Failed, short.Finished)
	}
	return nil
}
