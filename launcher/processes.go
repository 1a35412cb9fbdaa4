package launcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/process"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
)

// Process returns the status of a process. A process that has ended is remembered until 32 more
// processes of its group have ended. The error matches [ErrNotFound].
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
	NoReplacement bool // the process is not replaced: the group has one process fewer, until a reload changes Desired
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
	p.owner.stopProcess(p.Process, how.Reason, how.Grace, how.NoReplacement)
	return nil
}

// Signal sends a signal to a process, or to all processes of a group, but not to their descendants.
// It returns the ids of the processes. A process that ends because of the signal has ended by
// itself: the restart policy says whether it is replaced. The error matches [ErrNotFound] if
// neither a process nor a group has this name.
func (m *Manager) Signal(name string, sig syscall.Signal, reason string) (ids []string, err error) {
	var all []*process.Process
	if g, failed := m.group(name); failed == nil {
		all = g.processes()
	} else {
		p, err := m.process(name)
		if err != nil {
			return nil, fmt.Errorf("%w: neither a group nor a process has the name %q; run launcher status to list them", ErrNotFound, name)
		}
		all = append(all, p.Process)
	}
	for _, p := range all {
		signalled, failed := p.Signal(sig, reason)
		if signalled {
			ids = append(ids, p.ID())
		}
		err = errors.Join(err, failed)
	}
	if len(ids) == 0 && err == nil {
		err = fmt.Errorf("launcher: no process of %q runs, so none was signalled", name)
	}
	slices.Sort(ids)
	return ids, err
}

// A DryRun says what a shutdown of a process would have to wait for.
type DryRun struct {
	ID      string
	State   State
	Metrics *pb.ShutdownMetrics // nil if the process reports no metrics
	Message string
	Bound   time.Duration // the longest time that the shutdown can take
}

// DryRun asks processes what they would have to drain, and stops nothing. It asks the process with
// this id. If id is empty, it asks all processes of the group, and if group is empty, too, all
// processes. The error matches [ErrNotFound].
func (m *Manager) DryRun(ctx context.Context, id, group string) ([]DryRun, error) {
	var targets []*process.Process
	if id != "" {
		p, err := m.process(id)
		if err != nil {
			return nil, err
		}
		targets = append(targets, p.Process)
	} else {
		groups := m.allGroups()
		if group != "" {
			g, err := m.group(group)
			if err != nil {
				return nil, err
			}
			groups = append(groups[:0], g)
		}
		for _, g := range groups {
			targets = append(targets, g.processes()...)
		}
	}
	runs := make([]DryRun, len(targets))
	var calls sync.WaitGroup
	for i, p := range targets {
		calls.Go(func() {
			st := p.Status()
			runs[i] = DryRun{ID: p.ID(), State: st.State, Bound: st.Bound}
			runs[i].Metrics, runs[i].Message = p.AskDrain(ctx)
		})
	}
	calls.Wait()
	return runs, nil
}
