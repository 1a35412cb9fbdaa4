package launcher

import (
	"context"
	"sync"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/process"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
)

// A DryRun says what a shutdown of a process would have to wait for.
type DryRun struct {
	ID      string
	State   State
	Metrics *pb.ShutdownMetrics // nil: the process does not report any
	Message string
	Bound   time.Duration // the longest time that the shutdown can take
}

// DryRun asks processes what they would have to drain, and stops nothing. It asks the process id,
// or all processes of a group, or, if both names are empty, all processes. The error matches
// [ErrNotFound].
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
