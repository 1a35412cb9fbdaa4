package client

import (
	"context"

	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Register registers the protocol on a server, for programs that serve the protocol themselves. The
// server should answer until the end of the process. Every client that can connect to the server
// can stop the process.
func Register(r grpc.ServiceRegistrar, shutdown *ShutdownCoordinator, readiness *ReadinessCoordinator) {
	pb.RegisterProcessLifecycleInterfaceServer(r, &service{shutdown: shutdown, readiness: readiness})
}

// A service implements the protocol.
type service struct {
	pb.UnimplementedProcessLifecycleInterfaceServer
	shutdown  *ShutdownCoordinator
	readiness *ReadinessCoordinator
}

// checkID returns an error if a call is meant for another process. That happens if two processes
// have the same address.
func checkID(got, want string) error {
	if got != "" && want != "" && got != want {
		return status.Errorf(codes.NotFound, "the call is for process %q, and this is process %q; give each process an address of its own", got, want)
	}
	return nil
}

func (s *service) Shutdown(_ context.Context, in *pb.ShutdownRequest) (*pb.ShutdownAck, error) {
	if err := checkID(in.GetProcessId(), s.shutdown.id); err != nil {
		return nil, err
	}
	r, _ := s.shutdown.Request(Request{
		Reason: in.GetReason(),
		Grace:  duration(in.GetGracePeriodSeconds(), in.GetGracePeriodMs()),
		Max:    duration(in.GetMaxShutdownSeconds(), in.GetMaxShutdownMs()),

		GraceEnforced: in.GetGraceEnforced(),
	})
	s.readiness.Set(Draining, r.Reason)
	return &pb.ShutdownAck{Acknowledged: true, EstimatedSeconds: seconds(r.Grace), EstimatedMs: millis(r.Grace),
		Message: "draining: " + r.Reason}, nil
}

func (s *service) GetShutdownStatus(_ context.Context, in *pb.ShutdownStatusRequest) (*pb.ShutdownStatus, error) {
	if err := checkID(in.GetProcessId(), s.shutdown.id); err != nil {
		return nil, err
	}
	st := s.shutdown.status()
	if in.GetWithReport() {
		st.Report = report(st.GetMetrics().GetBlockingOperations())
	}
	return st, nil
}

func (s *service) GetReadinessStatus(_ context.Context, in *pb.ReadinessRequest) (*pb.ReadinessResponse, error) {
	if err := checkID(in.GetProcessId(), s.readiness.id); err != nil {
		return nil, err
	}
	return s.readiness.response(), nil
}
