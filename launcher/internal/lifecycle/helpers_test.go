package lifecycle_test

import (
	"syscall"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/lifecycle"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc/codes"
)

// config returns the default configuration of a group with protocol grpc. If edit is not nil, edit
// changes it first.
func config(edit func(*spec.Group)) spec.Group {
	cfg := spec.Default()
	cfg.Name, cfg.Command, cfg.Desired, cfg.Protocol = "m", []string{"m"}, 1, spec.GRPC
	if edit != nil {
		edit(&cfg)
	}
	return cfg
}

// A simulation is a Machine with a clock that tests advance. Its methods return the names of the
// machine's actions.
type simulation struct {
	*lifecycle.Machine
	begin, now time.Time
	reports    []time.Duration // times at which the machine has asked for a report
}

// simulate returns the state machine of a process that is about to be started or adopted.
func simulate(cfg spec.Group) *simulation {
	begin := time.Unix(1_000_000, 0)
	return &simulation{Machine: lifecycle.New(cfg, false), begin: begin, now: begin}
}

// spawn returns the state machine of a process that has just been started.
func spawn(cfg spec.Group) *simulation {
	m := simulate(cfg)
	m.step(lifecycle.Event{Kind: lifecycle.OnSpawned})
	return m
}

// ready returns a state machine in the state Ready.
func ready(cfg spec.Group) *simulation {
	m := spawn(cfg)
	m.pass(0)
	m.readiness(pb.ReadinessResponse_READY)
	return m
}

// draining returns the machine of a process that has just acknowledged the shutdown request.
func draining(cfg spec.Group) *simulation {
	m := ready(cfg)
	m.stop()
	m.deregistered()
	m.pass(0)
	m.ack(true)
	return m
}

func (m *simulation) step(e lifecycle.Event) (actions []string) {
	e.At = m.now
	for _, a := range m.Step(e) {
		if a.Report {
			m.reports = append(m.reports, m.elapsed())
		}
		actions = append(actions, actionNames[a.Kind]+a.Signal)
	}
	return actions
}

var actionNames = map[lifecycle.ActionKind]string{
	lifecycle.DoAskReadiness:      "ask readiness",
	lifecycle.DoRegister:          "register",
	lifecycle.DoDeregister:        "deregister",
	lifecycle.DoLeaveRouting:      "leave routing",
	lifecycle.DoShutdown:          "shutdown",
	lifecycle.DoAskStatus:         "ask status",
	lifecycle.DoSignal:            "signal ",
	lifecycle.DoTerminate:         "terminate",
	lifecycle.DoKill:              "kill",
	lifecycle.DoReportUnconfirmed: "report unconfirmed",
	lifecycle.DoReportGrace:       "report grace",
	lifecycle.DoReportExtension:   "report extension",
}

// elapsed returns the time since the simulation began.
func (m *simulation) elapsed() time.Duration { return m.now.Sub(m.begin) }

// next returns the time until the machine needs a tick, or -1 if it needs none.
func (m *simulation) next() time.Duration {
	next := m.Next()
	if next.IsZero() {
		return -1
	}
	return next.Sub(m.now)
}

// pass advances the clock by d, and passes an OnTick event to the state machine.
func (m *simulation) pass(d time.Duration) []string {
	m.now = m.now.Add(d)
	return m.step(lifecycle.Event{Kind: lifecycle.OnTick})
}

func (m *simulation) readiness(s pb.ReadinessResponse_ReadinessState) []string {
	return m.step(lifecycle.Event{Kind: lifecycle.OnReadiness, Readiness: &pb.ReadinessResponse{State: s, Message: "message"}})
}

func (m *simulation) readinessFails(c codes.Code) []string {
	return m.step(lifecycle.Event{Kind: lifecycle.OnReadiness, Code: c, Err: "failed"})
}

func (m *simulation) pushReady() []string {
	return m.step(lifecycle.Event{Kind: lifecycle.OnPushedReady})
}
func (m *simulation) stop() []string {
	return m.step(lifecycle.Event{Kind: lifecycle.OnStop, Reason: "test"})
}
func (m *simulation) deregistered() []string {
	return m.step(lifecycle.Event{Kind: lifecycle.OnDeregistered})
}
func (m *simulation) force() []string {
	return m.step(lifecycle.Event{Kind: lifecycle.OnForce, Reason: "test"})
}
func (m *simulation) exited() []string { return m.step(lifecycle.Event{Kind: lifecycle.OnExited}) }

func (m *simulation) ack(acknowledged bool) []string {
	return m.step(lifecycle.Event{Kind: lifecycle.OnAck, Ack: &pb.ShutdownAck{Acknowledged: acknowledged}})
}

func (m *simulation) ackFails(c codes.Code) []string {
	return m.step(lifecycle.Event{Kind: lifecycle.OnAck, Code: c, Err: "failed"})
}

func (m *simulation) status(s *pb.ShutdownStatus) []string {
	return m.step(lifecycle.Event{Kind: lifecycle.OnStatus, Status: s})
}

func (m *simulation) statusFails(c codes.Code) []string {
	return m.step(lifecycle.Event{Kind: lifecycle.OnStatus, Code: c, Err: "failed"})
}

func (m *simulation) pushEnd(drainError string) []string {
	return m.step(lifecycle.Event{Kind: lifecycle.OnPushedEnd, Reason: "drained", DrainError: drainError})
}

// reaped tells the state machine that the process has ended, with an exit code or by a signal. The
// parameters terminated and killed say whether the launcher had sent SIGTERM and SIGKILL before.
func (m *simulation) reaped(code int, sig syscall.Signal, terminated, killed bool) []string {
	return m.step(lifecycle.Event{Kind: lifecycle.OnReaped,
		Exit: proc.Exit{Code: code, Signal: sig, Status: "ended", Terminated: terminated, Killed: killed}})
}

// reapedUnknown tells the state machine that an adopted process has ended. Its exit status is
// unknown, because the launcher is not the parent of the process.
func (m *simulation) reapedUnknown() []string {
	return m.step(lifecycle.Event{Kind: lifecycle.OnReaped, Exit: proc.Exit{Unseen: true}})
}

func reports(s pb.ShutdownStatus_State) *pb.ShutdownStatus { return &pb.ShutdownStatus{State: s} }

// moreTime returns the status of a draining process that requests more time.
func moreTime(d time.Duration) *pb.ShutdownStatus {
	return &pb.ShutdownStatus{State: pb.ShutdownStatus_SHUTDOWN_DRAINING, NeedMoreTime: true, AdditionalMs: d.Milliseconds()}
}
