package admin

import (
	"context"

	"github.com/swansong-go/swansong/launcher/internal/peer"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc/codes"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// notifications serves the calls by which processes notify the launcher, so that it need not poll.
// A process can notify only for itself: the kernel says which process is at the other end of the
// socket. Package client makes the calls.
type notifications struct {
	pb.UnimplementedLauncherNotificationInterfaceServer
	launcher Launcher
	only     *int // the uid of the only user whose processes may notify; nil: the processes of every user may
}

// NotifyReady records that a process is ready. If the process has ended, the answer has
// Acknowledged false and is no error: the caller can be a descendant that has outlived the process.
func (n *notifications) NotifyReady(ctx context.Context, in *pb.ReadyNotification) (*pb.ReadyAck, error) {
	p, err := n.caller(ctx, in.GetProcessId())
	if err != nil {
		return nil, err
	}
	return &pb.ReadyAck{Acknowledged: p.Ready(in.GetMessage())}, nil
}

// NotifyShutdownComplete records that a process has drained, or in drain_error why it could not.
// The launcher goes on waiting for the process until it is reaped.
func (n *notifications) NotifyShutdownComplete(ctx context.Context, in *pb.ShutdownComplete) (*pb.ShutdownCompleteAck, error) {
	p, err := n.caller(ctx, in.GetProcessId())
	if err != nil {
		return nil, err
	}
	return &pb.ShutdownCompleteAck{Acknowledged: p.ShutdownComplete(in.GetMessage(), in.GetDrainError())}, nil
}

// NotifyServing records the port that a process has chosen for the lifecycle protocol over TCP. It
// fails if the process has reported another port before, or is not configured to choose one.
func (n *notifications) NotifyServing(ctx context.Context, in *pb.ServingNotification) (*pb.ServingAck, error) {
	p, err := n.caller(ctx, in.GetProcessId())
	if err != nil {
		return nil, err
	}
	if err := p.Serving(ctx, in.GetPort()); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return &pb.ServingAck{Acknowledged: true}, nil
}

// caller returns the process of this name, if the call comes from it or from a process that it has
// started: a wrapper such as a shell script may be the process that the launcher knows. Errors have
// a code of gRPC: NotFound, or PermissionDenied with the pid that the kernel has named.
func (n *notifications) caller(ctx context.Context, id string) (Process, error) {
	p, err := n.launcher.Notifier(id)
	if err != nil {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	from, ok := grpcpeer.FromContext(ctx)
	if !ok {
		return nil, status.Error(codes.PermissionDenied, "the launcher cannot see which process calls")
	}
	info, ok := from.AuthInfo.(peer.Info)
	if !ok || !p.HasPID(info.PID) {
		return nil, status.Errorf(codes.PermissionDenied, "pid %d may not notify for process %q", info.PID, id)
	}
	// The pid of the caller alone does not prove which user it belongs to, so the user of the
	// process is checked, too. A process of the allowed user could have connected, passed the
	// connection to other code, and ended. Then the kernel may have given its pid to a process of
	// another user.
	if n.only != nil && p.UID() != *n.only {
		return nil, status.Errorf(codes.PermissionDenied, "process %q does not run as the user with uid %d", id, *n.only)
	}
	return p, nil
}
