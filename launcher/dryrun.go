package launcher

import (
	"context"
	"sync"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/transport"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc"
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
	var targets []*process
	if id != "" {
		p, err := m.process(id)
		if err != nil {
			return nil, err
		}
		targets = append(targets, p)
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
		calls.Go(func() { runs[i] = p.dryRun(ctx) })
	}
	calls.Wait()
	return runs, nil
}

func (p *process) dryRun(ctx context.Context) DryRun {
	st := p.snapshot()
	r := DryRun{ID: p.id, State: st.State, Bound: st.Bound}
	switch {
	case st.State.Ended():
		r.Message = "it has ended"
		return r
	case !p.cfg.Protocol.CallsProcess() || p.usedProtocol() != GRPC && !p.conn.IsServed():
		r.Message = "it does not speak the protocol"
		return r
	}
	p.mu.Lock()
	child := p.child
	p.mu.Unlock()
	if child == nil {
		r.Message = "it is being started"
		return r
	}
	ctx, cancel := context.WithTimeout(ctx, p.config().Shutdown.Poll)
	defer cancel()
	answer, err := child.GetShutdownStatus(ctx, &pb.ShutdownStatusRequest{ProcessId: p.id}, grpc.WaitForReady(true))
	if err != nil {
		r.Message = "it does not answer: " + transport.Explain(err)
		return r
	}
	r.Metrics, r.Message = p.manager.secrets.MaskMetrics(answer.GetMetrics()), p.manager.secrets.Mask(answer.GetMessage())
	return r
}
