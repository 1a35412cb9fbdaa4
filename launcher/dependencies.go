package launcher

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/swansong-go/swansong/launcher/internal/controller"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// awaitDependencies waits until the groups that this one depends on satisfy its conditions. It
// returns false if the group is stopped before.
func (g *group) awaitDependencies() bool {
	begins := func(cfg spec.Group) bool {
		return ask(g, func(c *controller.Controller) bool { return c.BeginIfDependingOn(cfg) })
	}
	if begins(spec.Group{}) {
		return g.scope.Err() == nil
	}
	events, stop := g.manager.events.Watch()
	defer stop()
	for {
		var missing []string
		cfg := g.config() // read again in each round, because a reload can change DependsOn while the group waits
		for _, name := range cfg.DependsOn {
			switch condition := cfg.ConditionOf(name); {
			case g.manager.satisfies(name, condition):
			case condition == spec.Healthy:
				missing = append(missing, name)
			default:
				missing = append(missing, fmt.Sprintf("%s (%s)", name, condition))
			}
		}
		g.controller.Lock()
		g.controller.WaitFor(missing)
		g.controller.Unlock()
		if len(missing) == 0 && begins(cfg) {
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

// wakeDependents makes the groups that depend on the named one check their conditions again. Events
// wake them after other changes, but no event says that a process has been started.
func (r *registry) wakeDependents(name string) {
	for g := range r.dependents(name) {
		g.wake()
	}
}

// dependents returns an iterator over the groups that depend on the named one. It reads DependsOn
// of a group when it reaches the group.
func (r *registry) dependents(name string) iter.Seq[*group] {
	return func(yield func(*group) bool) {
		for _, g := range r.allGroups() {
			if slices.Contains(g.config().DependsOn, name) && !yield(g) {
				return
			}
		}
	}
}

// satisfies reports whether a group fulfils the condition under which a group that depends on it
// starts. A group that an operator has stopped fulfils none.
func (r *registry) satisfies(group string, c spec.Condition) bool {
	g, err := r.group(group)
	if err != nil {
		return false
	}
	h := g.health()
	switch {
	case h.Stopped:
		return false
	case c == spec.Started:
		return ask(g, (*controller.Controller).IsStarted)
	case c == spec.Completed:
		return ask(g, (*controller.Controller).IsFinished) && ask(g, (*controller.Controller).Failure) == nil
	}
	return h.Healthy
}

// finished reports whether all groups are finished. If they are, err says which of them have
// failed, or did not start.
func (r *registry) finished() (finished bool, err error) {
	for _, g := range r.allGroups() {
		needed, condition := r.waitsInVainFor(g)
		switch {
		case needed != "":
			outcome := fmt.Sprintf("has finished and will not be %s", condition)
			if other, failed := r.group(needed); failed == nil && ask(other, (*controller.Controller).AwaitsDependencies) {
				outcome = "did not start either"
			}
			err = errors.Join(err, fmt.Errorf("launcher: group %q did not start: it waits until group %q is %s, but %q %s", g.name, needed, condition, needed, outcome))
		case !ask(g, (*controller.Controller).IsFinished):
			return false, nil
		default:
			err = errors.Join(err, ask(g, (*controller.Controller).Failure))
		}
	}
	return true, err
}

// waitsInVainFor returns the name of a group that g depends on, and the condition that this group
// has to meet, if it can no longer do that unless an operator gives an order. It returns empty
// strings if there is no such group.
func (r *registry) waitsInVainFor(g *group) (name string, condition spec.Condition) {
	if !ask(g, (*controller.Controller).AwaitsDependencies) {
		return "", ""
	}
	cfg := g.config()
	for _, name := range cfg.DependsOn {
		needed, err := r.group(name)
		if err != nil {
			continue
		}
		condition := cfg.ConditionOf(name)
		if ask(needed, (*controller.Controller).IsFinished) && !r.satisfies(name, condition) {
			return name, condition
		}
		if other, _ := r.waitsInVainFor(needed); other != "" {
			return name, condition
		}
	}
	return "", ""
}
