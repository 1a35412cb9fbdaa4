package launcher

import (
	"context"
	"slices"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/peer"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc/codes"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// Notifications is where processes push what the launcher would otherwise ask for. A process speaks for itself only: the
// kernel says which process is at the other end of a socket.
type notifications struct {
	pb.UnimplementedLauncherNotificationInterfaceServer
	manager *Manager
}

func (n *notifications) NotifyReady(ctx context.Context, in *pb.ReadyNotification) (*pb.ReadyAck, error) {
	p, err := n.speaker(ctx, in.GetProcessId())
	if err != nil {
		return nil, err
	}
	p.redial()
	return &pb.ReadyAck{Acknowledged: p.send(event{kind: evPushedReady, reason: in.GetMessage()})}, nil
}

func (n *notifications) NotifyShutdownComplete(ctx context.Context, in *pb.ShutdownComplete) (*pb.ShutdownCompleteAck, error) {
	p, err := n.speaker(ctx, in.GetProcessId())
	if err != nil {
		return nil, err
	}
	return &pb.ShutdownCompleteAck{Acknowledged: p.send(event{kind: evPushedEnd, reason: in.GetMessage(), drainError: in.GetDrainError()})}, nil
}

func (n *notifications) NotifyServing(ctx context.Context, in *pb.ServingNotification) (*pb.ServingAck, error) {
	p, err := n.speaker(ctx, in.GetProcessId())
	if err != nil {
		return nil, err
	}
	if err := p.servesAt(ctx, in.GetPort()); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return &pb.ServingAck{Acknowledged: true}, nil
}

// speaker returns the process of this name, if the caller is it, or was started by it.
func (n *notifications) speaker(ctx context.Context, id string) (*process, error) {
	p, err := n.manager.process(id)
	if err != nil {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	caller, ok := grpcpeer.FromContext(ctx)
	if !ok {
		return nil, status.Error(codes.PermissionDenied, "the launcher cannot tell who calls")
	}
	info, ok := caller.AuthInfo.(peer.Info)
	if !ok || !p.is(info.PID) {
		return nil, status.Errorf(codes.PermissionDenied, "pid %d does not speak for process %q", info.PID, id)
	}
	return p, nil
}

// is reports whether a pid is that of the process, or of one that it has started.
func (p *process) is(pid int) bool {
	if p.snapshot().PID == pid {
		return true
	}
	p.mu.Lock()
	contained := p.proc
	p.mu.Unlock()
	return contained != nil && slices.ContainsFunc(contained.Members(), func(m proc.Member) bool { return m.PID == pid })
}
