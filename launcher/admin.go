package launcher

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// An admin answers operators. What a call has begun is the manager's, and outlives the call.
type admin struct {
	pb.UnimplementedLauncherAdminInterfaceServer
	manager *Manager
}

// wireError gives errors of this package their code.
func wireError(err error) error {
	switch {
	case errors.Is(err, ErrNotFound):
		return status.Error(codes.NotFound, err.Error())
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.FailedPrecondition, err.Error())
}

// reasonOf is what a call gives as its reason, with the name in the caller's certificate where there is one.
func reasonOf(ctx context.Context, given string) string {
	reason := cmp.Or(given, "admin request")
	if caller, ok := grpcpeer.FromContext(ctx); ok {
		if info, ok := caller.AuthInfo.(credentials.TLSInfo); ok && len(info.State.PeerCertificates) > 0 {
			reason += " (by " + info.State.PeerCertificates[0].Subject.String() + ")"
		}
	}
	return reason
}

// longestGrace is the longest that can be configured, too.
const longestGrace = 24 * time.Hour

func (a *admin) StopProcess(ctx context.Context, in *pb.StopProcessRequest) (*pb.StopProcessResponse, error) {
	if d := in.GetGracePeriod(); d != nil && (d.CheckValid() != nil || d.AsDuration() <= 0 || d.AsDuration() > longestGrace) {
		return nil, status.Errorf(codes.InvalidArgument, "launcher: grace_period has to be more than 0 and at most %v, and not %v; leave it out for the configured time",
			longestGrace, d.AsDuration())
	}
	how := Stop{Reason: reasonOf(ctx, in.GetReason()), Grace: in.GetGracePeriod().AsDuration(), NoReplacement: in.GetNoReplacement()}
	before, _ := a.manager.Process(in.GetProcessId())
	if err := a.manager.StopProcess(in.GetProcessId(), how); err != nil {
		return nil, wireError(err)
	}
	st, err := a.manager.Process(in.GetProcessId())
	if in.GetWait() {
		st, err = a.manager.Wait(ctx, in.GetProcessId())
	}
	if err != nil {
		return nil, wireError(err)
	}
	message := "stopping"
	switch {
	case before.State.Ended():
		message = "it had ended before: " + st.Outcome.String()
	case st.State.Ended():
		message = st.Outcome.String()
	}
	return &pb.StopProcessResponse{Acknowledged: true, Message: message, Status: wireStatus(st)}, nil
}

func (a *admin) RestartGroup(ctx context.Context, in *pb.RestartGroupRequest) (*pb.RestartGroupResponse, error) {
	g, err := a.manager.group(in.GetGroup())
	if err != nil {
		return nil, wireError(err)
	}
	reason := reasonOf(ctx, in.GetReason())
	var l *leg
	var doing, done string
	switch in.GetOrder() {
	case pb.RollOrder_BEGIN:
		doing, done = "rolling", "all processes have been replaced"
		l, err = g.restart(reason)
	case pb.RollOrder_RESUME:
		doing, done = "resumed", "all processes have been replaced"
		l, err = g.resumeRoll(reason)
	case pb.RollOrder_ROLLBACK:
		doing, done = "rolling back", "all processes have been put back"
		l, err = g.turnBack(reason)
	default:
		return nil, status.Errorf(codes.InvalidArgument, "there is no order %v", in.GetOrder())
	}
	if err != nil {
		return nil, wireError(err)
	}
	if !in.GetWait() {
		return &pb.RestartGroupResponse{Acknowledged: true, Message: doing}, nil
	}
	err = g.wait(ctx, l)
	if in.GetOrder() == pb.RollOrder_ROLLBACK && rolledBack(err) {
		err = nil
	}
	if err != nil {
		return nil, wireError(err)
	}
	return &pb.RestartGroupResponse{Acknowledged: true, Message: done}, nil
}

func (a *admin) Reload(ctx context.Context, in *pb.ReloadRequest) (*pb.ReloadResponse, error) {
	reason := reasonOf(ctx, cmp.Or(in.GetReason(), "reload"))
	changes, file, wait, err := a.reread(ctx, in.GetDryRun(), reason)
	if err != nil {
		return nil, wireError(err)
	}
	message := "being taken over"
	switch {
	case len(changes) == 0:
		message = "nothing has changed"
	case in.GetDryRun():
		message = "nothing was taken over"
	case in.GetWait():
		if err := wait(ctx); err != nil {
			return nil, wireError(err)
		}
		message = "taken over"
	}
	return &pb.ReloadResponse{Changes: changes, Message: message, File: file}, nil
}

// reread is that of the manager, on a goroutine of its own: nobody here could recover, and an operator is to be answered.
func (a *admin) reread(ctx context.Context, dry bool, reason string) (changes []string, file string, wait func(context.Context) error, err error) {
	done := make(chan struct{})
	go protect("Reread", func() {
		changes, file, wait, err = a.manager.reread(ctx, dry, reason)
	}, func(p *panicError) {
		defer close(done)
		if p != nil {
			changes, file, wait, err = nil, "", nil, p
			a.manager.publish(Event{Kind: Alarm, Message: p.Error(), Stack: string(p.stack)})
		}
	})
	<-done
	return changes, file, wait, err
}

func (a *admin) ReadLogs(in *pb.ReadLogsRequest, to grpc.ServerStreamingServer[pb.LogLine]) error {
	lines, more, stop, err := a.manager.Printed(in.GetName(), int(in.GetLines()))
	if err != nil {
		return wireError(err)
	}
	defer stop()
	missed := 0
	send := func(l Line) error {
		missed += l.Missed
		err := to.Send(&pb.LogLine{Time: timestamppb.New(l.Time), Group: l.Group, ProcessId: l.Process, Stream: l.Stream,
			Text: strings.ToValidUTF8(l.Text, "\uFFFD"), Missed: int64(missed)})
		missed = 0
		return err
	}
	for _, l := range lines {
		if err := send(l); err != nil {
			return err
		}
	}
	if !in.GetFollow() {
		return nil
	}
	for {
		select {
		case l, ok := <-more:
			if !ok {
				return nil
			}
			if err := send(l); err != nil {
				return err
			}
		case <-to.Context().Done():
			return status.FromContextError(to.Context().Err()).Err()
		}
	}
}

func (a *admin) GetProcessStatus(_ context.Context, in *pb.GetProcessStatusRequest) (*pb.ProcessStatus, error) {
	st, err := a.manager.Process(in.GetProcessId())
	if err != nil {
		return nil, wireError(err)
	}
	return wireStatus(st), nil
}

func (a *admin) GetGroupHealth(_ context.Context, in *pb.GetGroupHealthRequest) (*pb.GetGroupHealthResponse, error) {
	all := a.manager.Health()
	if in.GetGroup() != "" {
		h, err := a.manager.GroupHealth(in.GetGroup())
		if err != nil {
			return nil, wireError(err)
		}
		all = []Health{h}
	}
	out := &pb.GetGroupHealthResponse{}
	for _, h := range all {
		g := &pb.GroupHealth{Group: h.Group, Desired: int32(h.Desired), MinHealthy: int32(h.MinHealthy), Ready: int32(h.Ready),
			Updated: int32(h.Updated), Total: int32(h.Total), Healthy: h.Healthy, Message: h.Message, Revision: int64(h.Revision),
			Missing: int32(h.Missing), Roll: h.Roll.wire(), Stopping: h.Stopping, StopsAfter: h.StopsAfter}
		for _, st := range h.Processes {
			g.Processes = append(g.Processes, wireStatus(st))
		}
		out.Groups = append(out.Groups, g)
	}
	return out, nil
}

func (a *admin) WatchEvents(in *pb.WatchEventsRequest, to grpc.ServerStreamingServer[pb.Event]) error {
	if in.GetGroup() != "" {
		if _, err := a.manager.group(in.GetGroup()); err != nil {
			return wireError(err)
		}
	}
	events, stop := a.manager.Watch()
	defer stop()
	// Headers now: whoever has them misses nothing that happens from here on.
	if err := to.SendHeader(nil); err != nil {
		return err
	}
	missed := 0
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return nil
			}
			missed += e.Missed
			if in.GetGroup() != "" && in.GetGroup() != e.Group {
				continue
			}
			err := to.Send(&pb.Event{Time: timestamppb.New(e.Time), Kind: string(e.Kind), Group: e.Group, ProcessId: e.Process,
				From: e.From.wire(), To: e.To.wire(), Message: e.Message, Missed: int64(missed),
				Roll: e.Roll})
			if err != nil {
				return err
			}
			missed = 0
		case <-to.Context().Done():
			return status.FromContextError(to.Context().Err()).Err()
		}
	}
}

func (a *admin) DryRunShutdown(ctx context.Context, in *pb.DryRunShutdownRequest) (*pb.DryRunShutdownResponse, error) {
	runs, err := a.manager.DryRun(ctx, in.GetProcessId(), in.GetGroup())
	if err != nil {
		return nil, wireError(err)
	}
	out := &pb.DryRunShutdownResponse{}
	for _, r := range runs {
		out.Processes = append(out.Processes, &pb.DryRun{ProcessId: r.ID, State: r.State.wire(), Metrics: r.Metrics,
			Message: r.Message, Bound: durationpb.New(r.Bound)})
	}
	return out, nil
}

// A DryRun is what the shutdown of a process would have to deal with.
type DryRun struct {
	ID      string
	State   State
	Metrics *pb.ShutdownMetrics // nil: the process does not say
	Message string
	Bound   time.Duration // the longest that it can take
}

// DryRun asks processes what they would have to drain: one, those of a group, or, with neither named, all. It stops nothing.
// The error matches [ErrNotFound].
func (m *Manager) DryRun(ctx context.Context, id, group string) ([]DryRun, error) {
	var whom []*process
	if id != "" {
		p, err := m.process(id)
		if err != nil {
			return nil, err
		}
		whom = append(whom, p)
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
			g.mu.Lock()
			whom = append(whom, g.sorted()...)
			g.mu.Unlock()
		}
	}
	runs := make([]DryRun, len(whom))
	var asked sync.WaitGroup
	for i, p := range whom {
		asked.Go(func() { runs[i] = p.dryRun(ctx) })
	}
	asked.Wait()
	return runs, nil
}

func (p *process) dryRun(ctx context.Context) DryRun {
	st := p.snapshot()
	r := DryRun{ID: p.id, State: st.State, Bound: st.Bound}
	switch {
	case st.State.Ended():
		r.Message = "it has ended"
		return r
	case p.cfg.Protocol == Signals:
		r.Message = "it has no protocol to say"
		return r
	}
	p.mu.Lock()
	child := p.child
	p.mu.Unlock()
	if child == nil {
		r.Message = "it is being started"
		return r
	}
	ctx, cancel := context.WithTimeout(ctx, p.rules().Shutdown.Poll)
	defer cancel()
	answer, err := child.GetShutdownStatus(ctx, &pb.ShutdownStatusRequest{ProcessId: p.id}, grpc.WaitForReady(true))
	if err != nil {
		r.Message = "it does not answer: " + status.Convert(err).Message()
		return r
	}
	r.Metrics, r.Message = p.manager.redactMetrics(answer.GetMetrics()), p.manager.redact(answer.GetMessage())
	return r
}

func wireStatus(st Status) *pb.ProcessStatus {
	out := &pb.ProcessStatus{ProcessId: st.ID, Group: st.Group, State: st.State.wire(), Message: st.Message, Pid: int64(st.PID),
		Started: timestamppb.New(st.Started), Since: timestamppb.New(st.Since), Metrics: st.Metrics, Outcome: st.Outcome.wire(),
		Exit: st.Exit, Extensions: int32(st.Extension), Revision: int64(st.Revision),
		Bound: durationpb.New(st.Bound), Reason: st.Reason}
	if took := st.Took(); took > 0 {
		out.ShutdownDuration = durationpb.New(took)
	}
	return out
}
