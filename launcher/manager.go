package launcher

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/admin"
	"github.com/swansong-go/swansong/launcher/internal/events"
	"github.com/swansong-go/swansong/launcher/internal/process"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"github.com/swansong-go/swansong/launcher/internal/upgrade"
)

// A Manager runs groups of processes. It is a Swansong tree:
//
//	launcher            holds a guard until all else is complete, so that its socket answers
//	└── (groups)
//	    ├── web
//	    │   ├── web-1   holds a guard until the process has been reaped
//	    │   └── web-2
//	    └── worker
//
// Stopping the scope that the Manager was started in stops all groups concurrently, each group
// after those that depend on it. The stop is complete when the last process has been reaped, and a
// report of the scope names the processes that are left. [ctxshutdown.Swansong.Force] kills all
// processes. All methods may be called concurrently.
type Manager struct {
	cfg            Config
	scope          *ctxshutdown.Swansong
	groupsScope    *ctxshutdown.Swansong
	events         *events.Hub
	counter        counter
	host           *process.Host
	lock           *os.File
	damagedState   string // the new path of the damaged state file of an earlier launcher; empty if it was intact
	stateUntouched bool   // the state file is that of an earlier launcher; this launcher has not written one yet
	server         *admin.Server
	running        sync.WaitGroup // the goroutines of the groups
	reloader       *reloader
	taken          *upgrade.Taken // the launcher that this program is taking over; nil if it is not, or has done so
	upgraded       *upgraded      // the upgrade by which this program has taken over; nil if there was none
	*registry

	mu                sync.Mutex       // guards cfg.Source and previousGuardians
	previousGuardians []proc.Adoptable // guardians of earlier launchers
}

func (m *Manager) publish(e Event) {
	e.Message, e.Stack = m.host.Secrets.Mask(e.Message), m.host.Secrets.Mask(e.Stack)
	m.events.Publish(e)
}

// Shutdown stops all groups. The completion that it returns is done when all processes have been
// reaped and the launcher's files have been removed. Stopping the scope that the Manager was
// started in does the same, for everything in that scope.
func (m *Manager) Shutdown() *ctxshutdown.Completion { return m.scope.Shutdown() }

// Completion returns the completion that Shutdown returns, and stops nothing.
func (m *Manager) Completion() *ctxshutdown.Completion { return m.scope.Completion() }

// Force kills all processes. See [ctxshutdown.Swansong.Force].
func (m *Manager) Force(cause error) *ctxshutdown.Completion { return m.scope.Force(cause) }

// Scope returns the scope of the manager. Its reports name the processes that delay the shutdown.
func (m *Manager) Scope() *ctxshutdown.Swansong { return m.scope }

// Ready waits until all groups are healthy. It returns an error when ctx ends, when the manager is
// stopped, and as soon as a group is given up.
func (m *Manager) Ready(ctx context.Context) error {
	if ctx == nil {
		panic("launcher: Ready with a nil context")
	}
	events, stop := m.events.Watch()
	defer stop()
	for {
		var waiting []string
		for _, g := range m.allGroups() {
			h := g.health()
			if !h.Healthy {
				waiting = append(waiting, fmt.Sprintf("%s (%d of %d ready)", h.Group, h.Ready, h.MinHealthy))
			}
			if err := g.givenUp(); err != nil {
				return err
			}
		}
		if len(waiting) == 0 {
			return nil
		}
		select {
		case <-events:
		case <-m.scope.Done():
			return fmt.Errorf("launcher: the launcher was stopped before its groups were ready: %w", context.Cause(m.scope))
		case <-ctx.Done():
			return fmt.Errorf("launcher: the wait for groups to be ready ended while these were not: %q: %w", waiting, context.Cause(ctx))
		}
	}
}

// Health returns the health of all groups, in the order of the configuration.
func (m *Manager) Health() []Health {
	var all []Health
	for _, g := range m.allGroups() {
		all = append(all, g.health())
	}
	return all
}

// GroupHealth returns the health of a group. The error matches [ErrNotFound].
func (m *Manager) GroupHealth(name string) (Health, error) {
	g, err := m.group(name)
	if err != nil {
		return Health{}, err
	}
	return g.health(), nil
}

// Process returns the status of a process. That of a process that has ended is kept until 32 more
// of its group have ended. The error matches [ErrNotFound].
func (m *Manager) Process(id string) (Status, error) {
	p, err := m.process(id)
	if err != nil {
		return Status{}, err
	}
	return p.Status(), nil
}

// A Stop says how a process is stopped.
type Stop struct {
	Reason string
	// Grace is the time in which the process must stop, unless it asks for more; at most the
	// configured maximum. If it is 0, the configuration of the group decides.
	Grace         time.Duration
	NoReplacement bool // the group has one process fewer from now on, until a reload changes Desired
}

// StopProcess stops a process and does not wait for its end; see [Manager.Wait]. If the process is
// already stopping, the call changes only one thing: with NoReplacement, the process is no longer
// replaced. If there is no such process, the error matches [ErrNotFound].
func (m *Manager) StopProcess(id string, how Stop) error {
	if how.Grace < 0 {
		return fmt.Errorf("launcher: Stop.Grace is %v; it must be positive, or 0 for the configured grace period", how.Grace)
	}
	p, err := m.process(id)
	if err != nil {
		return err
	}
	p.owner.stopProcess(p.Process, how.Reason, how.Grace, !how.NoReplacement)
	return nil
}

// Wait waits for the end of a process and returns its last status.
func (m *Manager) Wait(ctx context.Context, id string) (Status, error) {
	p, err := m.process(id)
	if err != nil {
		return Status{}, err
	}
	select {
	case <-p.Ended():
		return p.Status(), nil
	case <-ctx.Done():
		return p.Status(), fmt.Errorf("launcher: waiting for the end of %s: %w", id, context.Cause(ctx))
	}
}

// Roll replaces all processes of the group that cfg names by processes of cfg, by the rules in cfg.
// It returns nil when that is done, and a [*RollError] when the roll has failed or is paused. When
// ctx ends, Roll returns, and the roll goes on. Roll supersedes a roll that is under way or paused:
// then the error of that one matches [ErrSuperseded]. Roll cannot change Listen and DependsOn;
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
	result, err := g.rollTo(to, reason)
	if err != nil {
		return err
	}
	return g.await(ctx, result)
}

// Restart is [Manager.Roll] with the configuration that the group has. If a roll is paused, that is
// the configuration from before the roll. During a roll it is the one that the roll leads to.
func (m *Manager) Restart(ctx context.Context, name, reason string) error {
	return m.order(ctx, name, reason, (*group).restart)
}

// Resume continues a paused roll and returns as Roll does. The error matches [ErrNotPaused] if no
// roll of the group is paused.
func (m *Manager) Resume(ctx context.Context, name, reason string) error {
	return m.order(ctx, name, reason, (*group).resumeRoll)
}

// Rollback makes a roll, under way or paused, turn back. Rollback returns nil when all processes
// have the configuration from before the roll again. When ctx ends, Rollback returns, and the roll
// continues to turn back. The error matches [ErrNotRolling] if the group has no roll.
func (m *Manager) Rollback(ctx context.Context, name, reason string) error {
	err := m.order(ctx, name, reason, (*group).rollBack)
	if isRolledBack(err) {
		return nil
	}
	return err
}

// order gives a group an order and waits for its result.
func (m *Manager) order(ctx context.Context, name, reason string, give func(g *group, reason string) (*rollResult, error)) error {
	g, err := m.group(name)
	if err != nil {
		return err
	}
	result, err := give(g, reason)
	if err != nil {
		return err
	}
	return g.await(ctx, result)
}
