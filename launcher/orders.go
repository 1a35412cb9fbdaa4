package launcher

import (
	"context"
	"fmt"
	"slices"

	"github.com/swansong-go/swansong/launcher/internal/controller"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// These errors refuse orders about a roll that do not fit what the group is doing.
var (
	ErrNotPaused  = controller.ErrNotPaused  // no roll of the group is paused, so none can be resumed
	ErrNoWayBack  = controller.ErrNoWayBack  // an earlier launcher started the processes, so their configuration is not known
	ErrNotRolling = controller.ErrNotRolling // no roll of the group is under way or paused
)

// ErrStopped matches errors about an order that a stopped group cannot follow; see
// [Manager.StopGroup].
var ErrStopped = controller.ErrStopped

// ErrSuperseded is the cause of the [*RollError] of a roll that a newer order has superseded before
// its end. The roll of that order replaces all processes that have another revision.
var ErrSuperseded = controller.ErrSuperseded

// Roll replaces all processes of the group that cfg names by processes of cfg, by the rules in cfg.
// It returns nil when that is done, and a [*RollError] when the roll has failed or is paused. When
// ctx ends, Roll returns, and the roll goes on. Roll supersedes a roll that is under way or paused,
// whose error then matches [ErrSuperseded]. Roll cannot change Listen and DependsOn;
// [Manager.Reload] can change DependsOn.
func (m *Manager) Roll(ctx context.Context, cfg GroupConfig, reason string) error {
	g, err := m.group(cfg.Name)
	if err != nil {
		return err
	}
	to := cfg.resolve()
	if err := invalid(spec.CheckGroup(to, m.host.Dir), []string{to.Name}, m.cfg.checkDeath(cfg)...); err != nil {
		return err
	}
	if err := m.cfg.checkFiles(to); err != nil {
		return err
	}
	c := change{g, to}
	if err := c.checkListeners(); err != nil {
		return err
	}
	if err := c.checkLog(); err != nil {
		return err
	}
	return m.carryOut(ctx, cfg.Name, rollTo(to, reason))
}

// Restart is [Manager.Roll] with the configuration that the group has. If a roll is paused, that is
// the configuration from before the roll. During a roll it is the one that the roll leads to.
func (m *Manager) Restart(ctx context.Context, name, reason string) error {
	return m.carryOut(ctx, name, restart(reason))
}

// Resume continues a paused roll and returns as Roll does. The error matches [ErrNotPaused] if no
// roll of the group is paused.
func (m *Manager) Resume(ctx context.Context, name, reason string) error {
	return m.carryOut(ctx, name, resume(reason))
}

// Rollback rolls back a roll that is under way or paused. Rollback returns nil when all processes
// have the configuration from before the roll again. When ctx ends, Rollback returns, and the
// rollback goes on. The error matches [ErrNotRolling] if the group has no roll.
func (m *Manager) Rollback(ctx context.Context, name, reason string) error {
	return m.carryOut(ctx, name, rollback(reason))
}

// StopGroup stops all processes of a group, and waits until they have ended. No process of the
// group is started before [Manager.StartGroup]: not by a reload, not by a restart of a group that
// it depends on, and not by the next launcher if this one is killed. A group that depends on a
// stopped group keeps running, but does not start. A roll of the group ends with [ErrSuperseded].
func (m *Manager) StopGroup(ctx context.Context, name, reason string) error {
	return m.carryOut(ctx, name, stopAll(reason))
}

// StartGroup undoes [Manager.StopGroup], and waits until the group is healthy. Earlier failures are
// forgotten: a group that was given up begins again, and a process that waits for the end of a
// pause is started at once.
func (m *Manager) StartGroup(ctx context.Context, name, reason string) error {
	return m.carryOut(ctx, name, startAgain(reason))
}

// Scale has the group run n processes, of any revision, and waits until n are ready and the others
// have ended. The number holds until a reload changes Desired. The next launcher keeps it only if
// it adopts processes of the group. If n is greater than the configured number, MinHealthy rises by
// the difference. Scale does not start a stopped group. It returns an error if a newer order or a
// reload changes the number meanwhile.
func (m *Manager) Scale(ctx context.Context, name string, n int, reason string) error {
	return m.carryOut(ctx, name, scale(n, reason))
}

// carryOut gives a group an order, and waits for its result.
func (m *Manager) carryOut(ctx context.Context, name string, o order) error {
	_, wait, err := m.give(name, o)
	if err != nil {
		return err
	}
	return wait(ctx)
}

// An order is what an operator wants of a group.
type order struct {
	// give tells the controller of the group to carry out the order from now on, or returns why the
	// order is refused. The caller has locked the group.
	give  func(g *group) (*controller.Result, error)
	await func(g *group, ctx context.Context, r *controller.Result) error
}

// give gives an order to the group with this name. It returns the result of the order, and a
// function that waits until the order has been carried out.
func (r *registry) give(name string, o order) (result *controller.Result, wait func(context.Context) error, err error) {
	g, err := r.group(name)
	if err != nil {
		return nil, nil, err
	}
	if result, err = g.accept(o); err != nil {
		return nil, nil, err
	}
	return result, func(ctx context.Context) error { return o.await(g, ctx, result) }, nil
}

// accept begins to carry out an order. It returns an error if the group is stopping. If the
// launcher is upgraded before the order has been carried out, the new launcher continues with it.
func (g *group) accept(o order) (*controller.Result, error) {
	g.manager.host.Gate.Enter()
	defer g.manager.host.Gate.Leave()
	g.controller.Lock()
	defer g.controller.Unlock()
	if err := g.checkRunning(); err != nil {
		return nil, err
	}
	defer g.wake()
	return o.give(g)
}

// startRoll begins a roll, unless the group is stopping. The controller is locked.
func (g *group) startRoll(cfg spec.Group, source any, reason string) (*controller.Result, error) {
	if err := g.checkRunning(); err != nil {
		return nil, err
	}
	defer g.wake()
	return g.controller.StartRoll(cfg, source, reason), nil
}

// awaitRoll waits for the end of a roll, or for its next pause.
func (g *group) awaitRoll(ctx context.Context, r *controller.Result) error {
	select {
	case <-r.Done():
		return r.Err()
	case <-ctx.Done():
		return fmt.Errorf("launcher: stopped waiting for the roll of %s; the roll continues: %w", g.name, context.Cause(ctx))
	}
}

// awaitRollback waits like awaitRoll, for a roll that is being rolled back. It returns nil if that
// has succeeded.
func (g *group) awaitRollback(ctx context.Context, r *controller.Result) error {
	if err := g.awaitRoll(ctx, r); !isRolledBack(err) {
		return err
	}
	return nil
}

func isRolledBack(err error) bool {
	e, ok := err.(*RollError)
	return ok && e.RolledBack
}

// awaitOrder waits until an order other than a roll is done and recorded in the state file. If the
// file cannot be written, awaitOrder does not wait for it; an alarm reports that.
func (g *group) awaitOrder(ctx context.Context, r *controller.Result) error {
	select {
	case <-r.Done():
		g.manager.host.StateFile.Flush(ctx.Done())
		return r.Err()
	case <-g.scope.Done():
		return fmt.Errorf("launcher: group %q is stopping: %w", g.name, context.Cause(g.scope))
	case <-ctx.Done():
		return fmt.Errorf("launcher: stopped waiting for the order to group %s; the order is still carried out: %w", g.name, context.Cause(ctx))
	}
}

// rollTo is the order to roll the group to a configuration that a program has given.
func rollTo(cfg spec.Group, reason string) order {
	return order{func(g *group) (*controller.Result, error) {
		if now := g.controller.Config().DependsOn; !slices.Equal(now, cfg.DependsOn) {
			return nil, &ConfigError{g.name, "DependsOn", fmt.Sprintf("cannot change from %q by a roll of one group; reload the whole configuration", now)}
		}
		return g.controller.StartRoll(cfg, g.controller.Source(), reason), nil
	}, (*group).awaitRoll}
}

// restart is the order to roll a group to the configuration that the group has when it accepts the
// order. So a restart does not undo a reload that came before it.
func restart(reason string) order {
	return order{func(g *group) (*controller.Result, error) { return g.controller.Restart(reason) }, (*group).awaitRoll}
}

// resume is the order to continue a paused roll.
func resume(reason string) order {
	return order{func(g *group) (*controller.Result, error) { return g.controller.Resume(reason) }, (*group).awaitRoll}
}

// rollback is the order to turn a roll back, whether it is paused or not.
func rollback(reason string) order {
	return order{func(g *group) (*controller.Result, error) { return g.controller.Rollback(reason) }, (*group).awaitRollback}
}

func stopAll(reason string) order {
	return order{func(g *group) (*controller.Result, error) { return g.controller.StopAll(reason), nil }, (*group).awaitOrder}
}

func startAgain(reason string) order {
	return order{func(g *group) (*controller.Result, error) { return g.controller.StartAgain(reason), nil }, (*group).awaitOrder}
}

// scale is the order to run n processes. It is refused if the configuration with n processes would
// be invalid.
func scale(n int, reason string) order {
	return order{func(g *group) (*controller.Result, error) {
		to := *g.controller.Config()
		to.MinHealthy = max(0, to.RollConfig(n).MinHealthy)
		to.Desired = n
		if err := invalid(spec.CheckGroup(to, g.manager.host.Dir), []string{g.name}); err != nil {
			return nil, err
		}
		return g.controller.Scale(n, reason), nil
	}, (*group).awaitOrder}
}
