package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/swansong-go/swansong/internal/worktext"
	"github.com/swansong-go/swansong/launcher/internal/lifecycle"
	"github.com/swansong-go/swansong/launcher/internal/output"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// A service serves the calls of operators. A stop, roll or reload that a call has begun continues
// when the call ends.
type service struct {
	pb.UnimplementedLauncherAdminInterfaceServer
	launcher Launcher
}

// wireError returns err with its gRPC code. An order that the launcher refuses is
// FailedPrecondition, whatever the reason, which the message says. The end of the call's own
// context is Canceled or DeadlineExceeded.
func (s *service) wireError(err error) error {
	switch {
	case s.launcher.IsNotFound(err):
		return status.Error(codes.NotFound, err.Error())
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.FailedPrecondition, err.Error())
}

// reasonOf returns the reason that a call gives, with the name in the caller's certificate if there
// is one. Reasons are in events and in the log, where one can see later which operator has given an
// order. Over the unix socket there is no name: all callers are the launcher's user or root.
func reasonOf(ctx context.Context, given string) string {
	reason := cmp.Or(given, "admin request")
	if caller, ok := grpcpeer.FromContext(ctx); ok {
		if info, ok := caller.AuthInfo.(credentials.TLSInfo); ok && len(info.State.PeerCertificates) > 0 {
			reason += " (by " + info.State.PeerCertificates[0].Subject.String() + ")"
		}
	}
	return reason
}

// maxGrace is the longest grace period that a call can set, and the longest that can be configured.
// 0 is refused as well, because the launcher takes it to mean the configured period.
const maxGrace = 24 * time.Hour

// StopProcess orders the stop of a process, and with wait returns when the process has ended. The
// message says whether the process had ended before the call. If the call is cancelled while it
// waits, the order still holds.
func (s *service) StopProcess(ctx context.Context, in *pb.StopProcessRequest) (*pb.StopProcessResponse, error) {
	if d := in.GetGracePeriod(); d != nil && (d.CheckValid() != nil || d.AsDuration() <= 0 || d.AsDuration() > maxGrace) {
		return nil, status.Errorf(codes.InvalidArgument, "launcher: grace_period is %v; it must be more than 0 and at most %v; omit it to use the configured one",
			d.AsDuration(), maxGrace)
	}
	id := in.GetProcessId()
	// Ignore the error here: if there is no such process, the call of StopProcess below returns the
	// same error.
	before, _ := s.launcher.Process(id)
	if err := s.launcher.StopProcess(id, reasonOf(ctx, in.GetReason()), in.GetGracePeriod().AsDuration(), in.GetNoReplacement()); err != nil {
		return nil, s.wireError(err)
	}
	st, err := s.launcher.Process(id)
	if in.GetWait() {
		st, err = s.launcher.Wait(ctx, id)
	}
	if err != nil {
		return nil, s.wireError(err)
	}
	message, outcome := "stopping", lifecycle.Outcome(st.GetOutcome()).String()
	switch {
	case lifecycle.State(before.GetState()).Ended():
		message = "the process had already ended: " + outcome
	case lifecycle.State(st.GetState()).Ended():
		message = outcome
	}
	return &pb.StopProcessResponse{Acknowledged: true, Message: message, Status: st}, nil
}

// RestartGroup begins, resumes or rolls back a roll. With wait it returns when the roll has ended
// or paused, with the error of a roll that has failed. A job has no roll: it runs once more. A
// group that waits for others and runs no process yet has no roll either. In these two cases
// RestartGroup does not wait, and its message says what the group does.
//
// If the client cancels the call during the wait, the roll continues; see [Launcher].
func (s *service) RestartGroup(ctx context.Context, in *pb.RestartGroupRequest) (*pb.RestartGroupResponse, error) {
	if err := s.launcher.CheckGroup(in.GetGroup()); err != nil {
		return nil, s.wireError(err)
	}
	var doing, done string
	switch in.GetOrder() {
	case pb.RollOrder_BEGIN:
		doing, done = "rolling", "all processes have been replaced"
	case pb.RollOrder_RESUME:
		doing, done = "resumed", "all processes have been replaced"
	case pb.RollOrder_ROLLBACK:
		doing, done = "rolling back", "all processes have been rolled back"
	default:
		return nil, status.Errorf(codes.InvalidArgument, "launcher: the order of a roll is %v; it must be BEGIN, RESUME or ROLLBACK", in.GetOrder())
	}
	instead, wait, err := s.launcher.Roll(in.GetGroup(), in.GetOrder(), reasonOf(ctx, in.GetReason()))
	switch {
	case err != nil:
		return nil, s.wireError(err)
	case instead != "":
		return &pb.RestartGroupResponse{Acknowledged: true, Message: instead}, nil
	case !in.GetWait():
		return &pb.RestartGroupResponse{Acknowledged: true, Message: doing}, nil
	}
	if err := wait(ctx); err != nil {
		return nil, s.wireError(err)
	}
	return &pb.RestartGroupResponse{Acknowledged: true, Message: done}, nil
}

// OrderGroup stops, starts or scales a group. With wait it returns when the group has reached what
// was ordered, or with the error of a newer order that has taken its place. The message says what
// has begun, such as "stopping", or with wait what has been reached, such as "stopped". If a
// stopped group is scaled, it starts no process: it has that number of processes once it is
// started.
func (s *service) OrderGroup(ctx context.Context, in *pb.OrderGroupRequest) (*pb.OrderGroupResponse, error) {
	texts := map[pb.GroupOrder][2]string{
		pb.GroupOrder_STOP: {"stopping", "stopped"}, pb.GroupOrder_START: {"starting", "started"}, pb.GroupOrder_SCALE: {"scaling", "scaled"},
	}
	text, ok := texts[in.GetOrder()]
	if !ok {
		return nil, status.Errorf(codes.InvalidArgument, "launcher: the order to a group is %v; it must be STOP, START or SCALE", in.GetOrder())
	}
	wait, err := s.launcher.OrderGroup(in.GetGroup(), in.GetOrder(), int(in.GetProcesses()), reasonOf(ctx, in.GetReason()))
	if err != nil {
		return nil, s.wireError(err)
	}
	if in.GetOrder() == pb.GroupOrder_SCALE && s.isStopped(in.GetGroup()) {
		return &pb.OrderGroupResponse{Message: fmt.Sprintf("the group is stopped; launcher start %s starts it with %s",
			in.GetGroup(), worktext.Pluralize(int(in.GetProcesses()), "process"))}, nil
	}
	if !in.GetWait() {
		return &pb.OrderGroupResponse{Message: text[0]}, nil
	}
	if err := wait(ctx); err != nil {
		return nil, s.wireError(err)
	}
	return &pb.OrderGroupResponse{Message: text[1]}, nil
}

// isStopped reports whether a group is stopped by the order of an operator.
func (s *service) isStopped(group string) bool {
	groups, err := s.launcher.Health(group)
	return err == nil && slices.ContainsFunc(groups, (*pb.GroupHealth).GetStopped)
}

// SignalProcesses sends a signal by its name, with or without SIG. Numbers are refused, because
// they differ between systems. It returns the ids of the processes that have got the signal.
func (s *service) SignalProcesses(ctx context.Context, in *pb.SignalProcessesRequest) (*pb.SignalProcessesResponse, error) {
	sig := lifecycle.SignalNamed(in.GetSignal())
	if sig == 0 {
		return nil, status.Errorf(codes.InvalidArgument, "launcher: there is no signal %q; name one such as HUP, USR1 or QUIT", in.GetSignal())
	}
	ids, err := s.launcher.Signal(in.GetName(), sig, reasonOf(ctx, in.GetReason()))
	if err != nil {
		return nil, s.wireError(err)
	}
	return &pb.SignalProcessesResponse{ProcessIds: ids}, nil
}

// Reload has the launcher read its file again and apply the changes. A dry run returns them and
// applies nothing. Without wait it returns as soon as the changes have been accepted.
//
// An error before that, such as that of a file that is not valid, leaves everything as it was. The
// answer names the file, because an operator may believe that another one was read.
func (s *service) Reload(ctx context.Context, in *pb.ReloadRequest) (*pb.ReloadResponse, error) {
	reason := reasonOf(ctx, cmp.Or(in.GetReason(), "reload"))
	changes, file, wait, err := s.launcher.Reread(ctx, in.GetDryRun(), reason)
	if err != nil {
		return nil, s.wireError(err)
	}
	message := "being applied"
	switch {
	case len(changes) == 0:
		message = "nothing has changed"
	case in.GetDryRun():
		message = "nothing was applied"
	case in.GetWait():
		if err := wait(ctx); err != nil {
			return nil, s.wireError(err)
		}
		message = "applied"
	}
	return &pb.ReloadResponse{Changes: changes, Message: message, File: file}, nil
}

// ReadLogs sends the latest lines of the output, and with follow the later ones until the client
// goes away or the launcher ends. Lines that a slow client has missed are counted in the next line
// that it gets. Bytes that are not UTF-8 are replaced, because protobuf would refuse the message.
func (s *service) ReadLogs(in *pb.ReadLogsRequest, to grpc.ServerStreamingServer[pb.LogLine]) error {
	lines, more, stop, err := s.launcher.Printed(in.GetName(), int(in.GetLines()))
	if err != nil {
		return s.wireError(err)
	}
	defer stop()
	missed := 0
	send := func(l output.Line) error {
		missed += l.Missed
		err := to.Send(&pb.LogLine{Time: timestamppb.New(l.Time), Group: l.Group, ProcessId: l.Process, Stream: l.Stream,
			Text: strings.ToValidUTF8(l.Text, "\uFFFD"), Missed: int32(missed)})
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

// GetProcessStatus returns the status of one process. It includes the report of what its drain
// waits for, which the launcher requests shortly before the deadline of a stop. GetGroupHealth
// leaves the reports out, because they can be large.
func (s *service) GetProcessStatus(_ context.Context, in *pb.GetProcessStatusRequest) (*pb.ProcessStatus, error) {
	st, err := s.launcher.Process(in.GetProcessId())
	if err != nil {
		return nil, s.wireError(err)
	}
	return st, nil
}

// GetGroupHealth returns the health of a group, or of all groups if the call names none. It waits
// for no process: it says what the launcher knows.
func (s *service) GetGroupHealth(_ context.Context, in *pb.GetGroupHealthRequest) (*pb.GetGroupHealthResponse, error) {
	groups, err := s.launcher.Health(in.GetGroup())
	if err != nil {
		return nil, s.wireError(err)
	}
	return &pb.GetGroupHealthResponse{Groups: groups}, nil
}

// WatchEvents sends events until the client goes away or the launcher ends. Each event has the
// number of events that the client has missed since the last one that was sent.
//
// The events are filtered by group here and not in package events, so a busy group can make the
// client miss events of the group that it watches. The number of missed events counts those of all
// groups.
func (s *service) WatchEvents(in *pb.WatchEventsRequest, to grpc.ServerStreamingServer[pb.Event]) error {
	if in.GetGroup() != "" {
		if err := s.launcher.CheckGroup(in.GetGroup()); err != nil {
			return s.wireError(err)
		}
	}
	next, stop := s.launcher.Watch()
	defer stop()
	// The headers say that the watch has begun: a client that has them misses no later event.
	if err := to.SendHeader(nil); err != nil {
		return err
	}
	var missed int32
	for e := next(to.Context()); e != nil; e = next(to.Context()) {
		missed += e.Missed
		if in.GetGroup() != "" && in.GetGroup() != e.Group {
			continue
		}
		e.Missed = missed
		if err := to.Send(e); err != nil {
			return err
		}
		missed = 0
	}
	// The watch ends with the call or with the launcher. If the launcher has ended, Err returns
	// nil, and the client gets the end of the stream without an error.
	return status.FromContextError(to.Context().Err()).Err()
}

// Upgrade serves both calls that a client makes for an upgrade. The first one executes the new
// program, which ends the connection, so the client gets an answer only if that fails or if the
// call is a dry run. Then the client calls again with confirm and the same id, and the new program
// answers.
func (s *service) Upgrade(ctx context.Context, in *pb.UpgradeRequest) (*pb.UpgradeResponse, error) {
	if !in.GetConfirm() {
		// An upgrade that has begun continues if the client disconnects.
		path, n, err := s.launcher.Upgrade(context.WithoutCancel(ctx), in.GetProgram(), reasonOf(ctx, cmp.Or(in.GetReason(), "upgrade")), in.GetId(), in.GetDryRun())
		if err != nil {
			return nil, s.wireError(err)
		}
		return &pb.UpgradeResponse{Message: "the program could take over; nothing was done", Program: path, Processes: int32(n)}, nil
	}
	program, n, failed, known := s.launcher.Upgraded(in.GetId())
	switch {
	case !known:
		return nil, status.Errorf(codes.NotFound, "launcher: this launcher has not taken over in the upgrade with the id %q; its log may say why", in.GetId())
	case failed != "":
		return nil, status.Errorf(codes.FailedPrecondition, "launcher: not upgraded: the other program has taken over, and has failed: %s; the earlier one goes on", failed)
	}
	return &pb.UpgradeResponse{Message: fmt.Sprintf("upgraded: %s has taken over with %s", program, worktext.Pluralize(n, "process")), Program: program, Processes: int32(n)}, nil
}

// DryRunShutdown asks the processes what a stop would have to wait for. It takes as long as the
// slowest of them, about one poll interval at most. If a process reports nothing, the message in
// its part of the response says why.
func (s *service) DryRunShutdown(ctx context.Context, in *pb.DryRunShutdownRequest) (*pb.DryRunShutdownResponse, error) {
	runs, err := s.launcher.DryRun(ctx, in.GetProcessId(), in.GetGroup())
	if err != nil {
		return nil, s.wireError(err)
	}
	return &pb.DryRunShutdownResponse{Processes: runs}, nil
}
