package launcher

import (
	"context"
	"fmt"

	"github.com/swansong-go/swansong/launcher/internal/controller"
)

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
			if err := ask(g, (*controller.Controller).GivenUp); err != nil {
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
			return fmt.Errorf("launcher: groups %q were not ready when the wait ended: %w", waiting, context.Cause(ctx))
		}
	}
}

// Finished waits until all groups are finished: they have no processes, and start none until an
// operator gives an order. That is so when the restart policy replaces none of the processes that
// have ended, when a group was given up, and when it waits for a group that is finished and not
// healthy.
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
		return p.Status(), fmt.Errorf("launcher: stopped waiting for the end of %s: %w", id, context.Cause(ctx))
	}
}
