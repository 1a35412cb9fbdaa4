package launcher

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/admin"
	"github.com/swansong-go/swansong/launcher/internal/callback"
	"github.com/swansong-go/swansong/launcher/internal/mtls"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// An AdminConfig configures the admin service over TCP, which operators can use besides the socket
// in the launcher's directory.
type AdminConfig struct {
	Address string `yaml:"address"` // host:port to listen on; if empty, there is no service over TCP. For port 0 see [Manager.AdminAddr]

	// TLS is required with an Address. Every client with a certificate of its authority can stop
	// the processes.
	TLS TLS `yaml:"tls"`
}

// AdminAddr returns the address at which the admin service listens over TCP, or nil if it does not
// listen over TCP.
func (m *Manager) AdminAddr() net.Addr { return m.server.Addr() }

// Dial returns a client of the launcher that runs with this directory. Client and launcher each
// check that the other one belongs to the same user or to root. Root can be the client of another
// user's launcher, if the directory belongs to that user. The first call connects. The caller
// closes the connection.
func Dial(dir string) (pb.LauncherAdminInterfaceClient, *grpc.ClientConn, error) {
	return admin.Dial(dir)
}

// DialTLS returns a client of a launcher's admin service over TCP, at host:port. Client and
// launcher each present a certificate, and that of the launcher must be valid for this host. The
// certificate files are read again for each connection, as described at [TLS]. The first call
// connects, and returns an error if a certificate is refused. The caller closes the connection.
func DialTLS(address string, files TLS) (pb.LauncherAdminInterfaceClient, *grpc.ClientConn, error) {
	return admin.DialTLS(address, mtls.Files(files))
}

// adminLauncher adapts a Manager to package admin, which uses the types of the protocol.
type adminLauncher struct{ manager *Manager }

func (l adminLauncher) IsNotFound(err error) bool { return errors.Is(err, ErrNotFound) }

func (l adminLauncher) CheckGroup(name string) error {
	_, err := l.manager.group(name)
	return err
}

func (l adminLauncher) Process(id string) (*pb.ProcessStatus, error) {
	st, err := l.manager.Process(id)
	out := wireStatus(st)
	// The report of a process, which lists its goroutines and what its drain waits for, is only in
	// the status of a single process. With the reports of all processes, a status would become too
	// large.
	out.Report = st.Report
	return out, err
}

func (l adminLauncher) Wait(ctx context.Context, id string) (*pb.ProcessStatus, error) {
	st, err := l.manager.Wait(ctx, id)
	return wireStatus(st), err
}

func (l adminLauncher) StopProcess(id, reason string, grace time.Duration, noReplacement bool) error {
	return l.manager.StopProcess(id, Stop{Reason: reason, Grace: grace, NoReplacement: noReplacement})
}

func (l adminLauncher) Roll(name string, roll pb.RollOrder, reason string) (instead string, wait func(context.Context) error, err error) {
	o := restart(reason)
	switch roll {
	case pb.RollOrder_RESUME:
		o = resume(reason)
	case pb.RollOrder_ROLLBACK:
		o = rollback(reason)
	}
	result, wait, err := l.manager.give(name, o)
	if err != nil {
		return "", nil, err
	}
	return result.Instead(), wait, nil
}

func (l adminLauncher) OrderGroup(name string, o pb.GroupOrder, processes int, reason string) (wait func(context.Context) error, err error) {
	orders := map[pb.GroupOrder]order{pb.GroupOrder_STOP: stopAll(reason), pb.GroupOrder_START: startAgain(reason), pb.GroupOrder_SCALE: scale(processes, reason)}
	_, wait, err = l.manager.give(name, orders[o])
	return wait, err
}

func (l adminLauncher) Signal(name string, sig syscall.Signal, reason string) ([]string, error) {
	return l.manager.Signal(name, sig, reason)
}

// Reread reads the configuration again. A panic of Config.Reread becomes an error for the operator
// and an alarm.
func (l adminLauncher) Reread(ctx context.Context, dry bool, reason string) (changes []string, file string, wait func(context.Context) error, err error) {
	p := callback.Call("Reread", func() {
		changes, file, wait, err = l.manager.reloader.reread(ctx, dry, reason)
	})
	if p != nil {
		l.manager.publish(Event{Kind: Alarm, Message: p.Error(), Stack: string(p.Stack)})
		return nil, "", nil, p
	}
	return changes, file, wait, err
}

func (l adminLauncher) Printed(name string, last int) (lines []Line, more <-chan Line, stop func(), err error) {
	return l.manager.Printed(name, last)
}

func (l adminLauncher) Health(name string) (groups []*pb.GroupHealth, err error) {
	all := l.manager.Health()
	if name != "" {
		h, err := l.manager.GroupHealth(name)
		if err != nil {
			return nil, err
		}
		all = []Health{h}
	}
	for _, h := range all {
		groups = append(groups, wireHealth(h))
	}
	return groups, nil
}

func (l adminLauncher) Watch() (next func(context.Context) *pb.Event, stop func()) {
	events, stop := l.manager.Watch()
	return func(ctx context.Context) *pb.Event {
		select {
		case e, ok := <-events:
			if !ok {
				return nil
			}
			out := &pb.Event{Time: timestamppb.New(e.Time), Kind: string(e.Kind), Group: e.Group, ProcessId: e.Process,
				From: pb.ProcessState(e.From), To: pb.ProcessState(e.To), Message: e.Message, Missed: int32(e.Missed), Roll: e.Roll, Stack: e.Stack}
			if e.Outcome != NotEnded {
				out.Outcome = pb.Outcome_Value(e.Outcome).Enum()
			}
			return out
		case <-ctx.Done():
			return nil
		}
	}, stop
}

func (l adminLauncher) Upgrade(ctx context.Context, program, reason, id string, dry bool) (path string, processes int, err error) {
	return l.manager.upgrader.upgrade(ctx, program, reason, id, dry)
}

func (l adminLauncher) Upgraded(id string) (program string, processes int, failed string, known bool) {
	u := l.manager.upgraded
	if u == nil || u.id != id {
		return "", 0, "", false
	}
	program, _ = os.Executable()
	return program, u.processes, l.manager.host.Secrets.Mask(u.failed), true
}

func (l adminLauncher) DryRun(ctx context.Context, id, group string) ([]*pb.DryRun, error) {
	runs, err := l.manager.DryRun(ctx, id, group)
	if err != nil {
		return nil, err
	}
	var out []*pb.DryRun
	for _, r := range runs {
		out = append(out, &pb.DryRun{ProcessId: r.ID, State: pb.ProcessState(r.State), Metrics: r.Metrics,
			Message: r.Message, Bound: durationpb.New(r.Bound)})
	}
	return out, nil
}

func (l adminLauncher) Notifier(id string) (admin.Process, error) { return l.manager.process(id) }

func wireHealth(h Health) *pb.GroupHealth {
	out := &pb.GroupHealth{Group: h.Group, Desired: int32(h.Desired), MinHealthy: int32(h.MinHealthy), Ready: int32(h.Ready),
		Updated: int32(h.Updated), Total: int32(h.Total), Healthy: h.Healthy, Message: h.Message, Revision: int32(h.Revision),
		Missing: int32(h.Missing), Roll: wireRoll(h.Roll), Stopping: h.Stopping, StopsAfter: h.StopsAfter, Unrecorded: h.Unrecorded, Stopped: h.Stopped}
	for _, st := range h.Processes {
		out.Processes = append(out.Processes, wireStatus(st))
	}
	return out
}

func wireStatus(st Status) *pb.ProcessStatus {
	out := &pb.ProcessStatus{ProcessId: st.ID, Group: st.Group, State: pb.ProcessState(st.State), Message: st.Message, Pid: int32(st.PID),
		Started: timestamppb.New(st.Started), Since: timestamppb.New(st.Since), Metrics: st.Metrics, Outcome: pb.Outcome_Value(st.Outcome),
		Exit: st.Exit, Extensions: int32(st.Extension), Revision: int32(st.Revision),
		Bound: durationpb.New(st.Bound), Reason: st.Reason}
	if took := st.Took(); took > 0 {
		out.ShutdownDuration = durationpb.New(took)
	}
	return out
}

func wireRoll(s *RollStatus) *pb.RollStatus {
	if s == nil {
		return nil
	}
	out := &pb.RollStatus{From: int32(s.From), To: int32(s.To), Phase: s.Phase, Paused: s.Paused, Why: s.Why,
		GivenUp: int32(s.GivenUp), Canaries: int32(s.Canaries), Message: s.String()}
	if !s.Until.IsZero() {
		out.Until = timestamppb.New(s.Until)
	}
	return out
}
